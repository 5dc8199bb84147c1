//! [`Params`]: the params of a request, with an index of their common members.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::OnceLock;

use bowline_types::Json;

use super::split::{MemberName, Members};
use super::{NotAnObject, PickError, pick};

/// The params of a request: JSON with an index of the members that are read in nearly every request.
///
/// The index is built while the frame is decoded, or when [`member`](Self::member) is first called.
///
/// # Examples
///
/// ```
/// use bowline_core::json::Params;
/// use bowline_types::Json;
///
/// let params = Params::from(Json::parse(r#"{"name": "add", "arguments": {"a": 1}}"#)?);
/// assert_eq!(params.member("name")?, Some(Json::encode("add")?));
/// assert_eq!(params.member("_meta")?, None);
/// assert!(params.as_str().starts_with('{'));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Params {
    json: Json,
    /// The index, once it is built.
    index: OnceLock<Result<MemberIndex, NotAnObject>>,
}

/// The positions of the [indexed](INDEXED_MEMBERS) members. Copied as one block whenever params are cloned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberIndex([MemberPosition; INDEXED_MEMBERS.len()]);

/// The position of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MemberPosition {
    #[default]
    Absent,
    /// A byte range; `u32` halves the size of the index, and few frames are longer.
    At {
        start: u32,
        end: u32,
    },
    /// Beyond the range of `u32`: searched for on each access.
    OutOfRange,
    Duplicate,
}

impl Params {
    /// Returns an empty object.
    #[must_use]
    pub fn none() -> Self {
        Json::empty_object().into()
    }

    /// Returns the value of a member.
    ///
    /// # Errors
    ///
    /// If the params are not an object, or the member is duplicated.
    pub fn member(&self, name: &str) -> Result<Option<Json>, PickError> {
        let Some(at) = INDEXED_MEMBERS.iter().position(|indexed| *indexed == name) else {
            return self.search(name);
        };
        let index = self
            .index
            .get_or_init(|| MemberIndex::build(self.json.as_bytes()));
        match &index.as_ref().map_err(|not| *not)?.0[at] {
            MemberPosition::Absent => Ok(None),
            MemberPosition::At { start, end } => {
                let text = &self.json.as_bytes()[*start as usize..*end as usize];
                Ok(Some(self.json.slice(text)))
            }
            MemberPosition::OutOfRange => self.search(name),
            MemberPosition::Duplicate => Err(PickError::Duplicate(name.to_owned())),
        }
    }

    fn search(&self, name: &str) -> Result<Option<Json>, PickError> {
        let [member] = pick(&self.json, [name])?;
        Ok(member)
    }

    /// Creates params from JSON and the index that was built while it was checked.
    pub(crate) fn with_index(json: Json, index: MemberIndex) -> Self {
        Self {
            json,
            index: OnceLock::from(Ok(index)),
        }
    }

    /// Returns the JSON without the index.
    #[must_use]
    pub fn into_json(self) -> Json {
        self.json
    }
}

impl MemberIndex {
    fn build(text: &[u8]) -> Result<Self, NotAnObject> {
        let mut index = Self::default();
        let mut members = Members::of(text)?;
        while let Some((name, value)) = members.next()? {
            let start = value.as_ptr().addr() - text.as_ptr().addr();
            index.record(&name, start..start + value.len());
        }
        Ok(index)
    }

    /// Records the byte range of a member in the text of the params, if it is indexed.
    pub(crate) fn record(&mut self, name: &MemberName<'_>, range: Range<usize>) {
        let Some(at) = INDEXED_MEMBERS.iter().position(|indexed| name.is(indexed)) else {
            return;
        };
        self.0[at] = match self.0[at] {
            MemberPosition::Absent => match (range.start.try_into(), range.end.try_into()) {
                (Ok(start), Ok(end)) => MemberPosition::At { start, end },
                _ => MemberPosition::OutOfRange,
            },
            _ => MemberPosition::Duplicate,
        };
    }
}

impl Deref for Params {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.json
    }
}

impl From<Json> for Params {
    fn from(json: Json) -> Self {
        Self {
            json,
            index: OnceLock::new(),
        }
    }
}

impl From<serde_json::Value> for Params {
    fn from(value: serde_json::Value) -> Self {
        Json::from(value).into()
    }
}

impl From<Params> for Json {
    fn from(params: Params) -> Self {
        params.json
    }
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for Params {}

impl PartialEq<Json> for Params {
    fn eq(&self, other: &Json) -> bool {
        self.json == *other
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

/// The members that [`Params`] indexes, because routing, admission or tools read them in nearly every request.
pub const INDEXED_MEMBERS: [&str; 8] = [
    "_meta",
    "name",
    "uri",
    "arguments",
    "task",
    "taskId",
    "requestState",
    "inputResponses",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> Params {
        Json::parse(text.to_owned()).unwrap().into()
    }

    #[test]
    fn members_are_found_whether_they_are_indexed_or_not() {
        let params = params(r#"{ "x": [1], "na\u006de" : "add", "arguments": {"name": 2} }"#);

        let found = |name| params.member(name).unwrap().map(|json| json.to_string());

        assert_eq!(found("name").as_deref(), Some(r#""add""#));
        assert_eq!(found("arguments").as_deref(), Some(r#"{"name": 2}"#));
        assert_eq!(found("x").as_deref(), Some("[1]"));
        assert_eq!(found("_meta"), None);
        assert_eq!(found("y"), None);
    }

    #[test]
    fn a_duplicate_member_is_an_error() {
        let params = params(r#"{"name": 1, "uri": 2, "name": 3, "name": 4}"#);

        assert_eq!(
            params.member("name"),
            Err(PickError::Duplicate("name".to_owned()))
        );
        assert!(params.member("uri").unwrap().is_some());
    }

    #[test]
    fn an_indexed_member_is_not_searched_for() {
        let text = br#"{"x": 1, "name": "add"}"#;

        let index = MemberIndex::build(text).unwrap();

        let expected = MemberPosition::At { start: 17, end: 22 };
        assert_eq!(index.0[1], expected);
        assert_eq!(index.0[0], MemberPosition::Absent);
    }

    #[test]
    fn params_are_equal_if_their_json_is() {
        assert_eq!(params(r#"{"a":1}"#), Json::from_static(r#"{"a":1}"#));
        assert_ne!(params(r#"{"a":1}"#), Json::empty_object());
        assert_ne!(params(r#"{"a":1}"#), params("{}"));
    }

    #[test]
    fn a_member_beyond_the_index_range_is_searched_for() {
        let mut index = MemberIndex::default();
        index.record(
            &MemberName::new(b"\"name\"", false),
            usize::MAX - 1..usize::MAX,
        );
        let params = Params::with_index(Json::parse(r#"{"name": 1}"#).unwrap(), index);

        assert_eq!(params.member("name"), Ok(Some(Json::encode(&1).unwrap())));
    }

    #[test]
    fn only_an_object_has_members() {
        for text in ["[]", "null", "1"] {
            let params = params(text);

            assert_eq!(params.member("name"), Err(NotAnObject.into()));
            assert_eq!(params.member("other"), Err(NotAnObject.into()));
        }
    }
}
