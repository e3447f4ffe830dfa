"""The paper's figure 4: loss by depth, as a table and a page."""
