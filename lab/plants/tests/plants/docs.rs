//! docs/plants.md says what the code assumes.

use std::fs;
use std::path::Path;

use litd_plants::Dimension;
use litd_plants::dimension::Basis;

/// The page's table of dimensions, as it must be.
fn rows() -> String {
    let rows = Dimension::ALL.iter().map(|dimension| {
        let it = dimension.spec();
        let basis = match it.basis {
            Basis::Data => "data",
            Basis::Literature => "literature",
            Basis::Assumed => "assumed",
        };
        let range = format!("{} to {} {}", it.low, it.high, it.unit);
        format!(
            "| {} | {} | {basis} | {} | {} |\n",
            it.name,
            range.trim_end(),
            it.meaning,
            it.source
        )
    });
    rows.collect()
}

#[test]
fn the_page_has_every_dimension_with_its_range_and_source() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plants.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = rows();
    assert!(
        page.contains(&rows),
        "the table of dimensions in docs/plants.md must be:\n{rows}"
    );
}
