//! Finds, in a configuration file that is not valid TOML, the sections `[hardware]` and `[state]`: they say where
//! devices and the undo journal are, and a mistake may hide all that follows it from the parser. If it is not certain
//! which lines belong to a section, there is no answer.

/// The sections that are found.
pub const SECTIONS: [&str; 2] = ["hardware", "state"];

/// The lines of a section, as a text of their own. `None`: a line may belong to it or not.
pub fn section_of(text: &str, name: &str) -> Option<String> {
    let (mut top, mut own) = (String::new(), String::new());
    let mut is_inside = false;
    let mut is_top = true;
    for line in text.lines() {
        let packed: String = line.chars().filter(|it| !it.is_whitespace()).collect();
        let said = packed.split('#').next().unwrap_or_default();
        let words = said.replace(['"', '\''], "");
        if said.starts_with('[') {
            is_top = false;
            is_inside = words == format!("[{name}]");
            if is_inside && !own.is_empty() || !is_inside && names(&words, name) {
                return None;
            }
        } else if said.ends_with(']') && !said.contains('[') && names(&words, name) {
            return None;
        }
        let is_header = words == format!("[{name}]");
        if !is_header
            && ["[{}]", "[{}."]
                .iter()
                .any(|it| words.contains(&it.replace("{}", name)))
        {
            return None;
        }
        let begins = |end: char| words.starts_with(&format!("{name}{end}"));
        if is_inside {
            own = own + line + "\n";
        } else if begins('.') || begins('=') {
            if !is_top {
                return None;
            }
            top = top + line + "\n";
        }
    }
    Some(top + &own)
}

/// Whether what may be a header is this section's, or a part's of it.
fn names(header: &str, name: &str) -> bool {
    let said = header.trim_matches(['[', ']']);
    said == name || said.starts_with(&format!("{name}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_found_whatever_is_wrong_before_it() {
        let state = "[state]\ndirectory = \"/srv/litd\"\n";
        for wrong in [
            "[caps]\nbudget: 1000\n",
            "<<<<<<< HEAD\n",
            "[caps\n",
            "caps]\n",
            "note = \"\"\"\n",
            "list = [1,\n",
            "",
        ] {
            let text = format!("{wrong}{state}[log]\nlevel = \"info\"\n");
            assert_eq!(
                section_of(&text, "state").as_deref(),
                Some(state),
                "{wrong}"
            );
            assert_eq!(
                section_of(&text, "hardware").as_deref(),
                Some(""),
                "{wrong}"
            );
        }
        let dotted = "state.directory = \"/srv/litd\"\n";
        let text = format!("{dotted}[caps\n");
        assert_eq!(section_of(&text, "state").as_deref(), Some(dotted));
    }

    #[test]
    fn what_may_be_a_section_or_not_is_none() {
        for text in [
            "[state\ndirectory = \"/srv\"\n",
            "state]\ndirectory = \"/srv\"\n",
            "[[state]]\n",
            "+[state]\n+directory = \"/srv\"\n",
            "[state] directory = \"/srv\"\n",
            "[state.more]\n",
            "[state]\n[caps]\n[state]\n",
            "[caps]\nstate.directory = \"/srv\"\n",
        ] {
            assert_eq!(section_of(text, "state"), None, "{text}");
        }
    }
}
