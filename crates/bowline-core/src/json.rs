//! Reading and editing members of a JSON object without decoding their values.
//!
//! Routing and admission need only a few members of each message. [`pick`] finds members by name, [`Params`] caches
//! the positions of the common ones, and [`Object`] splits off all members for editing. All of them split the text at
//! its top level only.

pub(crate) mod check;

mod params;
pub(crate) use params::MemberIndex;
pub use params::{INDEXED_MEMBERS, Params};

mod outline;
pub use outline::outline;

mod split;
pub(crate) use split::Members;

use std::borrow::Cow;

use bowline_types::Json;

/// Finds members of an object by their names, in one pass.
///
/// # Errors
///
/// If `json` is not an object, or one of the names is duplicated in it, which JSON parsers resolve differently.
///
/// # Examples
///
/// ```
/// use bowline_core::json::pick;
/// use bowline_types::Json;
///
/// let json = Json::parse(r#"{"a": {"deep": 1}, "b": 2}"#)?;
/// let [b, c] = pick(&json, ["b", "c"])?;
/// assert_eq!(b, Some(Json::parse("2")?));
/// assert_eq!(c, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pick<const N: usize>(json: &Json, names: [&str; N]) -> Result<[Option<Json>; N], PickError> {
    let mut picked = [const { None }; N];
    let mut members = Members::of(json.as_bytes())?;
    while let Some((name, value)) = members.next()? {
        let Some(at) = names.iter().position(|wanted| name.is(wanted)) else {
            continue;
        };
        if picked[at].replace(json.slice(value)).is_some() {
            return Err(PickError::Duplicate(names[at].to_owned()));
        }
    }
    Ok(picked)
}

/// An error of [`pick`] or [`Params::member`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickError {
    /// The JSON is not an object.
    #[error(transparent)]
    NotAnObject(#[from] NotAnObject),
    /// A member is duplicated.
    #[error("duplicate member `{0}`")]
    Duplicate(String),
}

/// An error of [`Object::read_at_most`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The JSON is not an object.
    #[error(transparent)]
    NotAnObject(#[from] NotAnObject),
    /// The object has too many members.
    #[error("object exceeds the limit of {max} members")]
    TooManyMembers {
        /// The limit.
        max: usize,
    },
}

/// An error: the JSON is not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a JSON object")]
#[non_exhaustive]
pub struct NotAnObject;

/// The members of a JSON object in their order, with values that are not decoded.
///
/// # Examples
///
/// ```
/// use bowline_core::json::Object;
/// use bowline_types::Json;
///
/// let json = Json::parse(r#"{"a": {"deep": 1}, "b": 2}"#)?;
/// let mut object = Object::read(&json)?;
/// object.remove("b");
/// object.set("c", Json::parse("3")?);
/// assert_eq!(object.to_json().as_str(), r#"{"a":{"deep": 1},"c":3}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Json)>,
}

impl<'a> Object<'a> {
    /// Splits `json` into its members.
    ///
    /// # Errors
    ///
    /// If `json` is not an object.
    pub fn read(json: &'a Json) -> Result<Self, NotAnObject> {
        let mut text = Members::of(json.as_bytes())?;
        let mut members = Vec::new();
        while let Some((name, value)) = text.next()? {
            members.push((name.read()?, json.slice(value)));
        }
        Ok(Self { members })
    }

    /// Splits `json` into at most `max_members` members.
    ///
    /// For objects from a peer: a split member takes more memory than its text, so the split stops at the limit.
    ///
    /// # Errors
    ///
    /// If `json` is not an object, or has more than `max_members` members.
    pub fn read_at_most(json: &'a Json, max_members: usize) -> Result<Self, SplitError> {
        let mut text = Members::of(json.as_bytes())?;
        let mut members = Vec::new();
        while let Some((name, value)) = text.next()? {
            if members.len() == max_members {
                return Err(SplitError::TooManyMembers { max: max_members });
            }
            members.push((name.read()?, json.slice(value)));
        }
        Ok(Self { members })
    }

    /// Returns the value of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json> {
        self.members
            .iter()
            .find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Adds a member at the end, or replaces the value of an existing one in place.
    ///
    /// Takes time linear in the number of members. To build a large object, use [`Json::object`].
    pub fn set(&mut self, name: impl Into<Cow<'a, str>>, value: Json) {
        let name = name.into();
        match self.members.iter_mut().find(|(own, _)| *own == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name, value)),
        }
    }

    /// Removes a member and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.members.iter().position(|(own, _)| own == name)?;
        Some(self.members.remove(at).1)
    }

    /// Returns whether the object has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Iterates over the members in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> + Clone {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// Joins the members into JSON text.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::object(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_text() {
        let json = Json::parse(r#"{ "z": 1.0, "a" : [ ] }"#).unwrap();

        let object = Object::read(&json).unwrap();

        assert_eq!(object.to_json().as_str(), r#"{"z":1.0,"a":[ ]}"#);
        assert_eq!(object.member("a").unwrap().as_str(), "[ ]");
    }

    #[test]
    fn an_empty_object_stays_one() {
        let json = Json::parse("{ }").unwrap();

        let object = Object::read(&json).unwrap();

        assert!(object.is_empty());
        assert_eq!(object.to_json().as_str(), "{}");
    }

    #[test]
    fn members_are_picked_by_their_names() {
        let json = Json::parse(r#"{"a": {"b": 1}, "b": [2, "}"], "\u0063": null}"#).unwrap();

        let [c, b, absent] = pick(&json, ["c", "b", "deep"]).unwrap();

        assert_eq!(b.unwrap().as_str(), r#"[2, "}"]"#);
        assert!(c.unwrap().is_null());
        assert_eq!(absent, None);
    }

    #[test]
    fn picking_a_duplicate_member_is_an_error() {
        let json = Json::parse(r#"{"a": 1, "b": 2, "\u0062": 3}"#).unwrap();

        assert_eq!(
            pick(&json, ["b"]),
            Err(PickError::Duplicate("b".to_owned()))
        );
        assert!(pick(&json, ["a"]).is_ok());
    }

    #[test]
    fn an_object_with_more_members_than_the_limit_is_not_split() {
        let json = Json::parse(r#"{"a": 1, "b": 2}"#).unwrap();

        let max = 1;
        assert_eq!(Object::read_at_most(&json, 2).unwrap().iter().count(), 2);
        assert_eq!(
            Object::read_at_most(&json, max).unwrap_err(),
            SplitError::TooManyMembers { max }
        );
        assert_eq!(
            Object::read_at_most(&Json::null(), 1).unwrap_err(),
            SplitError::NotAnObject(NotAnObject)
        );
    }

    #[test]
    fn only_an_object_has_members() {
        for text in ["[]", "1", "null", r#""{}""#] {
            assert!(Object::read(&Json::parse(text).unwrap()).is_err());
        }
    }
}
