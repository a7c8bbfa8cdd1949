"""Bad evidence made from one bundle by rule: all that can be changed, is, and must be caught."""
