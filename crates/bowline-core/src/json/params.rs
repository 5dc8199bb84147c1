//! The params of a request, split once for all who look into them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::OnceLock;

use bowline_types::Json;

use super::split::{Members, Name};
use super::{NotAnObject, Unpicked, pick};

/// The params of a request: JSON in which the members that everybody on the way asks for are found in one
/// pass.
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
    /// Where the members are, once somebody has looked.
    known: OnceLock<Result<Known, NotAnObject>>,
}

/// Where the [known](KNOWN) members are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known([Place; KNOWN.len()]);

/// Where a member is.
#[derive(Clone, Debug, Default)]
enum Place {
    #[default]
    Nowhere,
    /// Few frames have as many bytes as these can count.
    At(Range<u32>),
    /// Too far in for that: it has to be looked for each time.
    FarIn,
    Twice,
}

impl Params {
    /// No params: an empty object.
    #[must_use]
    pub fn none() -> Self {
        Json::empty_object().into()
    }

    /// The value of a member.
    ///
    /// # Errors
    ///
    /// If the params are no object, or the member stands in them twice: nobody can say which of the two
    /// counts.
    pub fn member(&self, name: &str) -> Result<Option<Json>, Unpicked> {
        let Some(at) = KNOWN.iter().position(|known| *known == name) else {
            return self.look_for(name);
        };
        let known = self.known.get_or_init(|| Known::find(self.json.as_bytes()));
        match &known.as_ref().map_err(|not| *not)?.0[at] {
            Place::Nowhere => Ok(None),
            Place::At(Range { start, end }) => {
                let text = &self.json.as_bytes()[*start as usize..*end as usize];
                Ok(Some(self.json.slice(text)))
            }
            Place::FarIn => self.look_for(name),
            Place::Twice => Err(Unpicked::Twice(name.to_owned())),
        }
    }

    fn look_for(&self, name: &str) -> Result<Option<Json>, Unpicked> {
        let [member] = pick(&self.json, [name])?;
        Ok(member)
    }

    /// Params whose members were found when they were checked.
    pub(crate) fn split(json: Json, known: Known) -> Self {
        Self {
            json,
            known: OnceLock::from(Ok(known)),
        }
    }

    /// The text, with what is known about it left behind.
    #[must_use]
    pub fn into_json(self) -> Json {
        self.json
    }
}

impl Known {
    fn find(text: &[u8]) -> Result<Self, NotAnObject> {
        let mut known = Self::default();
        let mut members = Members::of(text)?;
        while let Some((name, value)) = members.next()? {
            let start = value.as_ptr().addr() - text.as_ptr().addr();
            known.note(&name, start..start + value.len());
        }
        Ok(known)
    }

    /// Takes note of where a member is in the text of the params.
    pub(crate) fn note(&mut self, name: &Name<'_>, place: Range<usize>) {
        let Some(at) = KNOWN.iter().position(|known| name.is(known)) else {
            return;
        };
        self.0[at] = match self.0[at] {
            Place::Nowhere => match (place.start.try_into(), place.end.try_into()) {
                (Ok(start), Ok(end)) => Place::At(start..end),
                _ => Place::FarIn,
            },
            _ => Place::Twice,
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
            known: OnceLock::new(),
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

/// The members that somebody asks for on the way of nearly every request.
pub(crate) const KNOWN: [&str; 6] = [
    "_meta",
    "name",
    "uri",
    "arguments",
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
    fn members_are_found_whether_they_are_known_or_not() {
        let params = params(r#"{ "x": [1], "na\u006de" : "add", "arguments": {"name": 2} }"#);

        let found = |name| params.member(name).unwrap().map(|json| json.to_string());

        assert_eq!(found("name").as_deref(), Some(r#""add""#));
        assert_eq!(found("arguments").as_deref(), Some(r#"{"name": 2}"#));
        assert_eq!(found("x").as_deref(), Some("[1]"));
        assert_eq!(found("_meta"), None);
        assert_eq!(found("y"), None);
    }

    #[test]
    fn a_member_that_stands_twice_is_refused_to_whoever_asks_for_it() {
        let params = params(r#"{"name": 1, "uri": 2, "name": 3, "name": 4}"#);

        assert_eq!(
            params.member("name"),
            Err(Unpicked::Twice("name".to_owned()))
        );
        assert!(params.member("uri").unwrap().is_some());
    }

    #[test]
    fn what_stands_too_far_in_to_be_noted_is_looked_for() {
        let mut known = Known::default();
        known.note(&Name::new(b"\"name\"", false), usize::MAX - 1..usize::MAX);
        let params = Params::split(Json::parse(r#"{"name": 1}"#).unwrap(), known);

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
