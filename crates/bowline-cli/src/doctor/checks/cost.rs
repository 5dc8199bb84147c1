//! What the definitions of tools cost in the context of a model.

use serde_json::{Value, json};

use super::super::codes;
use super::super::report::Finding;
use super::count;

/// The size of the definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) tools: usize,
    pub(crate) bytes: usize,
    /// The largest tools, with their bytes.
    pub(crate) largest: Vec<(String, usize)>,
}

impl Cost {
    /// Measures what hosts pass on to a model: names, descriptions and input schemas, and the instructions.
    pub(crate) fn of(tools: &[Value], instructions: &str) -> Self {
        let size = |tool: &Value| {
            let parts = ["name", "description", "inputSchema"].iter();
            let parts = parts.filter_map(|part| Some((*part, tool.get(part)?.clone())));
            Value::Object(parts.map(|(name, part)| (name.to_owned(), part)).collect())
                .to_string()
                .len()
        };
        let mut largest: Vec<_> = tools
            .iter()
            .map(|tool| {
                (
                    tool["name"].as_str().unwrap_or_default().to_owned(),
                    size(tool),
                )
            })
            .collect();
        let bytes = largest.iter().map(|(_, size)| size).sum::<usize>() + instructions.len();
        largest.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        largest.truncate(LARGEST);
        Self {
            tools: tools.len(),
            bytes,
            largest,
        }
    }

    /// An estimate, as tokenizers differ: four bytes of English and JSON make about one token.
    pub(crate) fn tokens(&self) -> usize {
        self.bytes / BYTES_PER_TOKEN
    }

    /// For a line of the report.
    pub(crate) fn describe(&self) -> String {
        let largest = self.largest.iter();
        let largest: Vec<_> = largest
            .map(|(name, bytes)| format!("{name} {bytes}"))
            .collect();
        let total = format!(
            "{}, {} bytes, about {} tokens",
            count(self.tools, "tool"),
            self.bytes,
            self.tokens()
        );
        match largest.is_empty() {
            true => total,
            false => format!("{total}; largest: {}", largest.join(", ")),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let largest = self.largest.iter();
        let largest: Vec<_> = largest
            .map(|(name, bytes)| json!({"name": name, "bytes": bytes, "tokens": bytes / BYTES_PER_TOKEN}))
            .collect();
        json!({"tools": self.tools, "bytes": self.bytes, "tokens": self.tokens(), "largest": largest})
    }

    pub(crate) fn finding(&self) -> Option<Finding> {
        (self.tokens() > MAX_TOKENS).then(|| {
            let what = format!("The definitions take {}.", self.describe());
            Finding::new(&codes::CONTEXT_COST, what)
        })
    }
}

const LARGEST: usize = 5;
const BYTES_PER_TOKEN: usize = 4;
/// A tenth of the context of a model of 200,000 tokens.
const MAX_TOKENS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_largest_tools_are_named() {
        let tools: Vec<_> = (1..=7)
            .map(|n| json!({"name": n.to_string(), "description": "x".repeat(n), "outputSchema": {"a": 1}}))
            .collect();

        let cost = Cost::of(&tools, "");

        assert_eq!(cost.tools, 7);
        let names: Vec<_> = cost.largest.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["7", "6", "5", "4", "3"]);
        // {"description":"x","name":"1"}, which outputSchema is not a part of
        assert_eq!(cost.bytes, 7 * 29 + 28);
        assert_eq!(cost.finding(), None);
    }

    #[test]
    fn definitions_that_fill_the_context_are_named() {
        let tools = [json!({"name": "a", "description": "x".repeat(100_000)})];

        assert_eq!(
            Cost::of(&tools, "").finding().unwrap().code.name,
            "context-cost"
        );
    }
}
