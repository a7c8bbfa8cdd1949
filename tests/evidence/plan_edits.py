"""The cases that are edits of the verifier's own tests, each with why it matters, on the small bundle."""

from tests.evidence.case import Case, Findings, add, made_by
from tests.verifier.edits import EDITS, Edit

_BY_NAME = {edit.name: edit for edit in EDITS}
#: Lines of the 70-process logs and manifest that edits name, and the same lines of the small ones.
_LINES = {
    "files.jsonl:88": "files.jsonl:19",
    "attempts.jsonl:139": "attempts.jsonl:15",
    "attempts.jsonl:140": "attempts.jsonl:16",
    "attempts.jsonl:141": "attempts.jsonl:17",
    "attempts.jsonl:142": "attempts.jsonl:18",
}
_SEVERAL = "The codes go together: "

#: Edits by name, and why each is a case.
WHY = {
    "manifest_lists_another_digest": "A manifest that hashes other bytes than are there: the plainest tampering.",
    "manifest_lists_another_size": "The digest is right and the size is not: both are checked, not one for both.",
    "manifest_lists_a_file_that_is_gone": "A listed file that is not there is missing evidence, not an unlisted one.",
    "a_file_is_not_listed": "A file outside the manifest is outside every signature over it.",
    "a_manifest_line_is_empty": "A line must have all its keys; the line and each key are named.",
    "the_manifest_is_torn": "A download cut short in its last line must not pass with the lines before.",
    "manifest_lines_are_swapped": "One bundle has one manifest: order is part of its digest.",
    "a_manifest_line_is_there_twice": "Two lines for one path could say two things of it.",
    "two_paths_differ_in_case": _SEVERAL
    + "a twin that differs in case only cannot be another file of a bundle, so it has no place there either, and on"
    " this file system it cannot be made without being one more file.",
    "the_summary_names_another_manifest": "bundle.json holds the manifest's digest, the manifest all others.",
    "the_summary_counts_wrongly": "Counts that a reader sees first must be those of the manifest.",
    "a_file_has_no_place": "A listed file beside the documents could carry anything; none is allowed.",
    "a_log_line_has_no_end": "A line without end would fill the memory of a reader that trusts newlines.",
    "a_capture_is_misnamed": "A file named by a digest must have it, whatever the manifest says.",
    "a_document_is_gone": "Taken out of folder and manifest alike: every bundle has its eight documents.",
    "a_record_is_written_with_spaces": "Equal values in other bytes would give a second digest to one record.",
    "a_record_lacks_a_key": "E7: no default is a passing value; a field left out is named.",
    "a_record_has_a_bool_for_a_number": "JSON true is not 1, though Python says it is.",
    "the_plan_has_an_unknown_key": "A misspelt key of a plan must not be passed over.",
    "the_ledger_has_an_anchor": "YAML anchors make one text mean another; they are refused.",
    "the_plan_is_not_the_expected_one": "The caller froze another plan: this bundle may be good, and is not that one's.",
    "the_summary_names_another_plan": "bundle.json and plan.yaml must be of one set.",
    "a_record_names_another_plan": "A record of another cohort, put among these.",
    "the_summary_names_another_ledger": "bundle.json and ledger.yaml must be of one set.",
    "the_summary_names_another_lock": "bundle.json and plan.lock must be of one set.",
    "the_summary_has_another_name": "A bundle that goes by another plan's name.",
    "a_simulation_poses_as_a_gpu": "Simulated evidence must never be taken for a GPU's.",
    "a_record_poses_as_a_gpus": "Nor may one record of it.",
    "the_lock_names_another_ledger": "The lock's name for the ledger is the ledger's.",
    "the_lock_has_another_order": "The order of processes is the plan's rule, not the runner's choice.",
    "the_lock_has_another_launch": "A lock that pins another launch than the plan gives.",
    "the_lock_counts_other_blocks": "Padded blocks follow from the routing; the lock cannot choose them.",
    "the_fixtures_digest_is_another": "The fixture's digest is that of its own description.",
    "the_lock_froze_another_routing": "routing.json must be the routing that was frozen.",
    "a_routing_weight_is_zero": "A weight of zero hides a route: not a routing of this fixture.",
    "a_pinned_route_is_elsewhere": "The plan pins this route to another expert.",
    "a_claim_cites_a_cell_that_is_not_there": "E6: a claim about a cell that the plan does not have is named, never passed.",
    "the_plans_kernel_is_not_known": "A kernel whose rules the verifier does not know cannot be worked out.",
    "a_fixture_tensor_has_another_shape": "Shapes follow from the plan's geometry.",
    "the_fixtures_routing_is_another": "The fixture's tensor of expert ids is routing.json, byte for byte.",
    "a_cell_has_no_record": "One process has no record: missing, with its name, not `all that are here agree`.",
    "a_record_is_one_too_many": _SEVERAL
    + "a record of a process that the plan does not have comes with an attempt at one.",
    "two_files_claim_one_cell_one_of_them_empty": "E3: a good record and an empty one for one cell: which is meant cannot be told.",
    "two_records_claim_one_cell": "A copy under another name claims the cell that it was copied from.",
    "a_record_has_another_name": "A record lies where its own identity puts it.",
    "the_time_zone_is_another": "A process with another environment is another treatment.",
    "the_environment_leaked": "One variable too many: the environment is the plan's, whole.",
    "the_interpreter_is_not_isolated": "Without -P a file beside the program could be imported in its place.",
    "hashes_are_random": "The hash seed is the environment's.",
    "time_runs_backwards": "Markers' times ascend.",
    "a_marker_is_gone": "A process that did not pass all its points did not do its work.",
    "the_chain_is_broken": "Each line of the log holds the digest of the line before.",
    "the_start_of_the_log_is_cut_off": "Attempts taken off the start break the chain at its first line.",
    "an_attempt_never_ended": "In a finished bundle every attempt has ended.",
    "an_end_has_no_start": "An end of an attempt that never started.",
    "the_log_gave_another_nonce": "The process that wrote this record is not the one that was started.",
    "the_log_has_another_records_digest": "The log holds the digest of the record that was accepted.",
    "a_failed_attempt_has_a_record": "A record of an attempt that failed is no evidence; both facts are said.",
    "a_cell_has_two_valid_attempts": "Run twice, keep the better: two valid attempts are ambiguous.",
    "a_path_is_real": "A real path tells whose machine it was, and differs on every other.",
    "the_site_folder_is_not_left_out": "Without -s the user's packages decide what is imported.",
    "an_attempt_is_another_campaigns": "An attempt at a cell that this plan does not have: a mixed log.",
    "a_failure_exited_with_zero": "A failure that exited with zero contradicts itself.",
    "a_failure_has_no_reason": "Every outcome but valid has a reason in words.",
    "the_last_two_processes_changed_places": "Processes start in the lock's order, so that drift cannot pose as a treatment.",
    "a_process_had_the_network": "One process could reach the network, and the others could not.",
    "it_ran_before_it_was_started": "A process cannot pass a marker before it was started: both are told by one clock.",
    "it_ran_on_after_its_end": "Nor after it had ended.",
    "one_of_them_ran_elsewhere": "A runner starts its processes on one machine; a record of another one was put among"
    " them.",
    "a_start_is_moved": "The time of a start is the boot's clock, as the starts and markers of the others show it.",
    "a_start_is_moved_back": "A machine's sleep since its boot never gets less: a start that would need less is moved.",
    "a_route_is_there_twice": "Two routes in one slot's stead: once too often here, missing there; both are said.",
    "a_sentinel_stands_before_a_route": "Padding stands behind an expert's routes, never before; both blocks are named.",
    "an_alignment_is_gone": "A record whose alignment nobody can see.",
    "a_route_moved": "A legal alignment that is not the treatment: only working it out catches this.",
    "a_native_alignment_was_injected": "Constructed means constructed; replay is another cell.",
    "a_buffer_is_short": "The kernel's buffers have lengths that follow from the geometry.",
    "an_alignment_is_nobodys": "A file that nothing refers to has no business in evidence.",
    "a_cta_has_other_threads": "The launch delivered must be the launch pinned.",
    "the_grid_is_ignored": "E8's other face: the grid that the cell asks for was not used.",
    "other_slices_were_executed": "The slices executed are those of the schedule, by digest.",
    "a_surface_is_left_out": "Every surface of the plan is recorded, none chosen.",
    "a_surface_has_another_shape": "A surface of another shape is another layer's.",
    "a_record_is_of_another_fixture": "Same plan, another layer: not this evidence.",
    "an_assumption_is_not_the_plans": "A record rests on nothing that its plan does not own up to.",
    "lane_order_is_not_said": "An order of lanes that nobody measured must be owned up to (U5).",
    "a_record_is_of_another_build": "Other software made this record.",
    "another_kernel_ran": "One record launched another symbol: two binaries in one cohort.",
    "a_simulation_has_a_devices_silu": "A simulator cannot have a device's activation.",
    "the_device_is_not_the_plans": "build.json names another device than the plan pins.",
    "a_simulation_has_a_driver": "No GPU took part in a simulation, so none of its drivers did.",
    "a_simulation_has_an_unknown_arithmetic": "Simulated bits come from one of the engine's own arithmetics, by name.",
    "no_source_was_hashed": "A build that names no source says nothing of what computed the bits.",
    "a_bit_is_flipped": "One bit of one tensor, with everything around it made to fit: level raw re-hashes.",
    "a_capture_is_gone": "The bundle says that captures are included; this one is not.",
    "captures_are_there_though_left_out": _SEVERAL
    + "a capture in a bundle that leaves them out is also one that no record names, or the records would be at odds.",
    "a_surface_has_another_digest": "A trajectory is the digest of its surfaces.",
    "a_capture_is_nobodys": "A capture that no record names.",
    "a_capture_is_none": "Bytes that are no safetensors file.",
    "a_capture_lacks_a_tensor": "A capture without one of the record's surfaces.",
    "a_nan_is_not_said": "A NaN's payload rests on assumption U4; the record must say so.",
    "captures_are_asked_for_and_left_out": "Released without raw objects: level raw says missing, never supported.",
    "one_capture_has_two_trajectories": "The same bytes cannot be two results.",
}
#: Edits of the default bundle whose findings on the small one are others.
FOUND: dict[str, Findings] = {
    "two_paths_differ_in_case": [("V102", "Plan.yaml"), ("V106", "files.jsonl:10"), ("V109", "Plan.yaml")],
    "two_files_claim_one_cell_one_of_them_empty": [("V403", "records/qualification.native.H0.1.copy.json")],
    "two_records_claim_one_cell": [("V403", "records/copy.json")],
    "a_claim_cites_a_cell_that_is_not_there": [("V313", "ledger.yaml:C02.outcome[0]")],
    "one_capture_has_two_trajectories": [
        ("V810", "records/qualification.native.H0.2.json:trajectory"),
        ("V810", "records/transfer.cross-order.H1.1.json:trajectory"),
        ("V810", "records/transfer.cross-order.H1.2.json:trajectory"),
    ],
}


def _add(edit: Edit, why: str) -> None:
    def found() -> Findings:  # asked for after the edit was made: some fill in a digest then
        return [(code, _here(where)) for code, where in FOUND.get(edit.name, edit.found)]

    name = edit.name.replace("_", "-")
    anchor = edit.anchor
    add(
        Case(
            name=name,
            why=why,
            make=made_by(edit.make),
            found=found,
            level=edit.level,
            anchor=(lambda: anchor) if anchor is not None else None,
        )
    )


def _here(where: str) -> str:
    for old, new in _LINES.items():
        if where == old or where.startswith((f"{old}.", f"{old},")):
            return where.replace(old, new)
    return where


for _name, _why in WHY.items():
    _add(_BY_NAME[_name], _why)
