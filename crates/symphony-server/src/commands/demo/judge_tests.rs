//! A judge that cannot say no is worthless: every kind of lie, one line each.
