"""An outer step without a centre: workers average shares of the model themselves."""
