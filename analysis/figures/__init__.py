"""Numbers → plotly figures: pure functions, one file per picture.

All backgrounds are transparent and no figure has a title (the page has headings). Text and grid colours are
overridden by ``assets/app.css``, which follows the page's dark mode without redrawing.
"""
