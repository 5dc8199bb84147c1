//! Reading and editing a JSON object without decoding what is in it.
//!
//! Most of what happens to a message on its way concerns a member or two of an object whose other members
//! nobody here needs to understand. [`pick`] finds some by their names; [`Params`] remembers where those are
//! that many ask for; [`Object`] has them all, to add to and take away from. All split the text at its top
//! level only.

pub(crate) mod check;

pub(crate) mod params;
pub(crate) use params::Known;
pub use params::Params;

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
/// If `json` is not an object, or one of the names stands in it twice: nobody can say which of the two
/// counts.
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
pub fn pick<const N: usize>(json: &Json, names: [&str; N]) -> Result<[Option<Json>; N], Unpicked> {
    let mut picked = [const { None }; N];
    let mut members = Members::of(json.as_bytes())?;
    while let Some((name, value)) = members.next()? {
        let Some(at) = names.iter().position(|wanted| name.is(wanted)) else {
            continue;
        };
        if picked[at].replace(json.slice(value)).is_some() {
            return Err(Unpicked::Twice(names[at].to_owned()));
        }
    }
    Ok(picked)
}

/// Why members of an object could not be picked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unpicked {
    /// There is no object to pick from.
    #[error(transparent)]
    NotAnObject(#[from] NotAnObject),
    /// A member stands twice.
    #[error("`{0}` stands twice")]
    Twice(String),
}

/// Why an object could not be split into its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsplit {
    /// The JSON is not an object.
    #[error(transparent)]
    NotAnObject(#[from] NotAnObject),
    /// The object has too many members.
    #[error("the object exceeds the limit of {max} members")]
    TooManyMembers {
        /// The limit.
        max: usize,
    },
}

/// The JSON is something other than an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a JSON object")]
#[non_exhaustive]
pub struct NotAnObject;

/// The members of a JSON object, in their order, each still text.
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

    /// Splits `json` into its members unless there are more than `max_members`.
    ///
    /// For an object whose size a peer decides: a member takes more memory than its text, so the split stops at
    /// the limit instead of counting afterwards.
    ///
    /// # Errors
    ///
    /// If `json` is not an object, or has more members than that.
    pub fn read_at_most(json: &'a Json, max_members: usize) -> Result<Self, Unsplit> {
        let mut text = Members::of(json.as_bytes())?;
        let mut members = Vec::new();
        while let Some((name, value)) = text.next()? {
            if members.len() == max_members {
                return Err(Unsplit::TooManyMembers { max: max_members });
            }
            members.push((name.read()?, json.slice(value)));
        }
        Ok(Self { members })
    }

    /// The value of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json> {
        self.members
            .iter()
            .find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Adds a member, or replaces it where it stands.
    ///
    /// This looks through the members that are there. To join many, use [`Json::object`]: adding them one by one
    /// takes quadratic time.
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

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> + Clone {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// Joins the members again.
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
    fn a_picked_member_stands_once() {
        let json = Json::parse(r#"{"a": 1, "b": 2, "\u0062": 3}"#).unwrap();

        assert_eq!(pick(&json, ["b"]), Err(Unpicked::Twice("b".to_owned())));
        assert!(pick(&json, ["a"]).is_ok());
    }

    #[test]
    fn an_object_with_more_members_than_the_limit_is_not_split() {
        let json = Json::parse(r#"{"a": 1, "b": 2}"#).unwrap();

        let max = 1;
        assert_eq!(Object::read_at_most(&json, 2).unwrap().iter().count(), 2);
        assert_eq!(
            Object::read_at_most(&json, max).unwrap_err(),
            Unsplit::TooManyMembers { max }
        );
        assert_eq!(
            Object::read_at_most(&Json::null(), 1).unwrap_err(),
            Unsplit::NotAnObject(NotAnObject)
        );
    }

    #[test]
    fn only_an_object_has_members() {
        for text in ["[]", "1", "null", r#""{}""#] {
            assert!(Object::read(&Json::parse(text).unwrap()).is_err());
        }
    }
}
