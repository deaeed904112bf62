"""Plugin for the napari viewer.

After ``pip install 'texseg[napari]'`` it is in the menu Plugins, as "Texture segments".
"""
