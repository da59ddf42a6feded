"""The specification of a job: one validated model behind the API, job files, the command line and forms.

Pure values; nothing here loads torch or Dask, reads files or knows the time.
"""
