//! The repository itself: house rules, documentation, scripts, and the library and the examples as others use them.

mod documentation;
mod house_rules;
mod languages;
mod outside;
mod quickstart;
mod scripts;
