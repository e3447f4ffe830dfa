"""Figure 4 of the paper: loss by depth, as a table and a page."""
