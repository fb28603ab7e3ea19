//! Graphs from files: `kind,a,b,c,d` with rows `node,id,instruction,stage,microbatch` and
//! `edge,from,to`; 0 is the source and 1 the sink.

use std::str::FromStr;

use litd_profiles::{Kind, MAX_STAGES};

use super::{Graph, GraphError, Node};

impl FromStr for Graph {
    type Err = GraphError;

    fn from_str(text: &str) -> Result<Self, GraphError> {
        let mut nodes = Vec::new();
        let mut edges = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut fields = line.trim_end_matches([',', '\r']).split(',').map(str::trim);
            let row = Row { line: number + 1 };
            match fields.next().unwrap_or_default() {
                "" => {}
                "kind" if number == 0 => {}
                "node" => {
                    let id = row.number(fields.next(), "a node's number")?;
                    let instruction = row.text(fields.next(), "an instruction")?;
                    let stage = row.stage(fields.next())?;
                    let microbatch = row.number(fields.next(), "a microbatch")?;
                    let kind = Kind { stage, instruction };
                    nodes.push(Node {
                        id,
                        kind,
                        microbatch,
                    });
                }
                "edge" => {
                    let from = row.number(fields.next(), "the node that an edge leaves")?;
                    edges.push((from, row.number(fields.next(), "the node that it enters")?));
                }
                other => return Err(row.error(format!("{other:?} is neither node nor edge"))),
            }
        }
        Self::new(&nodes, &edges)
    }
}

struct Row {
    line: usize,
}

impl Row {
    fn error(&self, what: String) -> GraphError {
        let line = self.line;
        GraphError::Line { line, what }
    }

    fn text(&self, field: Option<&str>, what: &str) -> Result<String, GraphError> {
        match field {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(self.error(format!("{what} is missing"))),
        }
    }

    fn stage(&self, field: Option<&str>) -> Result<u32, GraphError> {
        let text = self.text(field, "a stage")?;
        let not_one = || self.error(format!("{text:?} is not a stage below {MAX_STAGES}"));
        litd_profiles::stage(&text).ok_or_else(not_one)
    }

    fn number<T: FromStr>(&self, field: Option<&str>, what: &str) -> Result<T, GraphError> {
        let text = self.text(field, what)?;
        text.parse()
            .map_err(|_| self.error(format!("{text:?} is not {what}: a whole number is needed")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "kind,a,b,c,d\nnode,2,forward,0,0\nnode,3,backward,0,0\n";

    #[test]
    fn source_and_sink_are_joined_by_themselves() {
        let graph: Graph = format!("{TWO}edge,2,3,,\n").parse().unwrap();
        assert_eq!(graph.kinds().len(), 2);
        assert_eq!(graph.arcs().len(), 5);
        assert_eq!(graph.earliest(|_| 10)[Graph::SINK as usize], 20);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let error = |rows: &str| {
            format!("{TWO}{rows}")
                .parse::<Graph>()
                .unwrap_err()
                .to_string()
        };
        assert!(
            error("edge,2,3\nedge,3,2\n").contains("a cycle through node 2 (forward of stage 0, ")
        );
        assert!(error("edge,2,2\n").contains("a cycle through node 2"));
        assert!(error("edge,2,9\n").contains("names node 9"));
        assert!(error("edge,2,0\n").contains("into the source"));
        assert!(error("node,2,forward,0,1\n").contains("node 2 is defined twice"));
        assert!(error("node,4,forward,x,1\n").contains("line 4: \"x\" is not a stage"));
        assert!(error("node,4,forward,4294967295,1\n").contains("line 4: \"4294967295\" is not"));
        assert!(error("node,4,forward\n").contains("line 4: a stage is missing"));
        assert!(error("arc,2,3\n").contains("line 4: \"arc\" is neither"));
        assert_eq!("".parse::<Graph>().unwrap_err(), GraphError::Empty);
    }

    #[test]
    fn a_node_behind_a_cycle_is_not_blamed() {
        let text = format!("{TWO}node,4,forward,1,0\nedge,2,3\nedge,3,2\nedge,3,4\n");
        let error = text.parse::<Graph>().unwrap_err();
        assert!(
            matches!(error, GraphError::Cycle { id: 2 | 3, .. }),
            "{error}"
        );
    }
}
