"""`clipx export`: files for open_clip, or one file that clipx loads."""
