//! How the keys of `_meta` and the identifiers of extensions are written.
//!
//! ```text
//! key       = [ prefix "/" ] name
//! prefix    = label *( "." label )       label begins with a letter, ends with a letter or digit, may contain "-"
//! name      = "" or letters and digits, with "-", "_" and "." between them
//! extension = prefix "/" name            name is not empty
//! ```

/// Why a key of `_meta`, or the identifier of an extension, must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A label of its prefix is ill-formed.
    #[error(
        "a label of its prefix must begin with a letter, end with a letter or digit, and have only those and `-` between"
    )]
    Label,
    /// Its name is ill-formed.
    #[error(
        "its name must begin and end with a letter or digit, and have only those, `-`, `_` and `.` between"
    )]
    Name,
    /// It has no prefix and needs one.
    #[error("it needs a prefix that says whose it is, such as `com.example/`")]
    NoPrefix,
    /// Its prefix is reserved.
    #[error("prefixes whose second label is `modelcontextprotocol` or `mcp` are reserved")]
    Reserved,
}

/// Checks a key of `_meta` that an application chose.
///
/// The keys that the specification and its extensions define, which begin with `io.modelcontextprotocol/`, pass.
///
/// # Errors
///
/// If the specification does not allow it.
///
/// # Examples
///
/// ```
/// use bowline_types::{KeyError, check_meta_key};
///
/// assert!(check_meta_key("com.example/attempt").is_ok());
/// assert!(check_meta_key("traceparent").is_ok());
/// assert_eq!(check_meta_key("com.mcp/attempt"), Err(KeyError::Reserved));
/// assert_eq!(check_meta_key("com.example/an attempt"), Err(KeyError::Name));
/// ```
pub fn check_meta_key(key: &str) -> Result<(), KeyError> {
    let (prefix, name) = match key.rsplit_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if !prefix.split('.').all(is_label) {
            return Err(KeyError::Label);
        }
        let second = prefix.split('.').nth(1).unwrap_or_default();
        let is_reserved = ["modelcontextprotocol", "mcp"].contains(&second);
        if is_reserved && prefix != OFFICIAL {
            return Err(KeyError::Reserved);
        }
    }
    match name.is_empty() || is_name(name) {
        true => Ok(()),
        false => Err(KeyError::Name),
    }
}

/// Checks the identifier of an extension: a key of `_meta` that has a prefix and a name.
///
/// # Errors
///
/// If the specification does not allow it.
///
/// # Examples
///
/// ```
/// use bowline_types::{KeyError, check_extension_id};
///
/// assert!(check_extension_id("io.modelcontextprotocol/ui").is_ok());
/// assert_eq!(check_extension_id("ui"), Err(KeyError::NoPrefix));
/// ```
pub fn check_extension_id(id: &str) -> Result<(), KeyError> {
    check_meta_key(id)?;
    match id.rsplit_once('/') {
        None => Err(KeyError::NoPrefix),
        Some((_, "")) => Err(KeyError::Name),
        Some(_) => Ok(()),
    }
}

fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    label.starts_with(|c: char| c.is_ascii_alphabetic())
        && label.ends_with(|c: char| c.is_ascii_alphanumeric())
        && label.bytes().all(is_inner)
}

fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(is_end) && name.ends_with(is_end) && name.bytes().all(is_inner)
}

/// The prefix of what the specification defines.
const OFFICIAL: &str = "io.modelcontextprotocol";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_by_the_grammar() {
        for (key, judged) in [
            ("a", Ok(())),
            ("progressToken", Ok(())),
            ("a-b_c.d", Ok(())),
            ("com.example/", Ok(())),
            ("com.example/a", Ok(())),
            ("com.example.mcp/a", Ok(())),
            ("c-3.x/a", Ok(())),
            ("io.modelcontextprotocol/related-task", Ok(())),
            ("-a", Err(KeyError::Name)),
            ("a.", Err(KeyError::Name)),
            ("a b", Err(KeyError::Name)),
            ("ä", Err(KeyError::Name)),
            ("/a", Err(KeyError::Label)),
            ("com..example/a", Err(KeyError::Label)),
            ("3com/a", Err(KeyError::Label)),
            ("com-/a", Err(KeyError::Label)),
            ("com_example/a", Err(KeyError::Label)),
            ("a/b/c", Err(KeyError::Label)),
            ("dev.mcp/a", Err(KeyError::Reserved)),
            ("com.mcp.tools/a", Err(KeyError::Reserved)),
            ("com.modelcontextprotocol/a", Err(KeyError::Reserved)),
        ] {
            assert_eq!(check_meta_key(key), judged, "{key}");
        }
        for (id, judged) in [
            ("com.example/x", Ok(())),
            ("x", Err(KeyError::NoPrefix)),
            ("com.example/", Err(KeyError::Name)),
        ] {
            assert_eq!(check_extension_id(id), judged, "{id}");
        }
    }
}
