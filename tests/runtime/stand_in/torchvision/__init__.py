"""What the program `images` needs of torchvision, for machines that have none.

There is no build of it for every torch. The names, arguments and answers are those of
torchvision 0.28; `tests/runtime/test_train_images.py` uses the real one where it is.
"""
