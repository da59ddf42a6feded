"""The pages, one small file each: they fetch rows, draw figures and say what is wrong."""
