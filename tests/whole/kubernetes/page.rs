//! What docs/install.md shows.

use std::fs;

use crate::built::repository;

/// The example whose first line begins so, without its indentation.
pub fn example(first: &str) -> String {
    let page = fs::read_to_string(repository().join("docs/install.md")).expect("the page is there");
    let lines = page.lines().map(|line| line.strip_prefix("    "));
    let found: String = lines
        .skip_while(|line| !line.is_some_and(|it| it.starts_with(first)))
        .map_while(|line| Some(format!("{}\n", line?)))
        .collect();
    assert!(!found.is_empty(), "no example begins with {first}");
    found
}
