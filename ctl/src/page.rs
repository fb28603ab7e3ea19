//! The frame of reports as one HTML file: no script, nothing from a network; it fits a phone and paper.

use crate::svg::escaped;

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884}
body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:auto;padding:1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}figure{margin:0}
p,li{overflow-wrap:anywhere}pre{overflow-x:auto;font-size:.8rem}
svg{width:100%;height:auto;display:block}
svg text{font-size:11px;fill:currentColor}.title{font-size:12px}
.grid{stroke:var(--line);fill:none}.curve{fill:none;stroke-width:1.4}.thin{fill:none;stroke-width:.7;opacity:.7}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{padding:.2rem .4rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}th{font-weight:600;font-size:.85rem;vertical-align:bottom}
td:first-child,th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:7rem}
.key span{display:inline-block;margin-right:.8rem}.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem}
dl{display:grid;grid-template-columns:auto 1fr;gap:.3rem .8rem;margin:.8rem 0}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}
tr:has(strong) td{background:#d55e0022}
.verdict{font-size:1.15rem;border-left:.3rem solid #d55e00;padding-left:.8rem}
@media print{body{max-width:none;font-size:10pt;padding:0}figure,tr{break-inside:avoid}h2{break-after:avoid}
table{display:table;width:100%}td,th{white-space:normal;font-size:8pt}pre{white-space:pre-wrap}}
";

/// A page up to its heading.
pub fn begin(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{STYLE}</style></head><body>\n<h1>{}</h1>\n",
        escaped(title),
        escaped(heading)
    )
}

/// The whole page.
pub fn end(page: String) -> String {
    page + "</body></html>\n"
}
