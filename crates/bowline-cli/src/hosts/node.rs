//! [`Node`], a value of a configuration file and its line, whatever the format of the file.

/// A value of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Where the value, or the key before it, begins. From 1.
    pub(crate) line: usize,
    pub(crate) value: NodeValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeValue {
    Null,
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// The members in the order of the file, where the format keeps it.
    Map(Vec<(String, Node)>),
}

/// Why a file cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Node {
    pub(crate) fn new(line: usize, value: NodeValue) -> Self {
        Self { line, value }
    }

    /// Returns the member of a map. The last one counts if there are several, as in most parsers.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let members = self.members()?;
        let found = members.iter().rfind(|(name, _)| name == key);
        found
            .map(|(_, node)| node)
            .filter(|node| node.value != NodeValue::Null)
    }

    pub(crate) fn members(&self) -> Option<&[(String, Self)]> {
        match &self.value {
            NodeValue::Map(members) => Some(members),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.value {
            NodeValue::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match &self.value {
            NodeValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns text, and the text of numbers and booleans, because people write `"PORT": 80`.
    pub(crate) fn to_text(&self) -> Option<String> {
        match &self.value {
            NodeValue::Text(text) | NodeValue::Number(text) => Some(text.clone()),
            NodeValue::Bool(value) => Some(value.to_string()),
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => None,
        }
    }
}

/// Finds the lines of byte offsets.
pub(crate) struct LineIndex {
    /// The offset of each line's first byte.
    starts: Vec<usize>,
}

impl LineIndex {
    pub(crate) fn new(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1));
        Self {
            starts: starts.collect(),
        }
    }

    /// Returns the line of an offset, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}
