//! The grammar of `_meta` keys and extension identifiers.
//!
//! ```text
//! key       = [ prefix "/" ] name
//! prefix    = label *( "." label )       label begins with a letter, ends with a letter or digit, may contain "-"
//! name      = "" or letters and digits, with "-", "_" and "." between them
//! extension = prefix "/" name            name is not empty
//! ```

/// An invalid `_meta` key or extension identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaKeyError {
    /// A label of the prefix is invalid.
    #[error(
        "a label of the prefix must start with a letter, end with a letter or digit, and contain only letters, digits and `-`"
    )]
    Label,
    /// The name is invalid.
    #[error(
        "the name must start and end with a letter or digit, and contain only letters, digits, `-`, `_` and `.`"
    )]
    Name,
    /// The prefix is missing.
    #[error("a prefix such as `com.example/` is required")]
    NoPrefix,
    /// The prefix is reserved.
    #[error("prefixes whose second label is `modelcontextprotocol` or `mcp` are reserved")]
    Reserved,
}

/// Validates a `_meta` key against the grammar and the reserved prefixes. The prefix `io.modelcontextprotocol/`, which
/// the specification and its extensions use, is valid.
///
/// # Errors
///
/// If it is invalid.
///
/// # Examples
///
/// ```
/// use bowline_types::{MetaKeyError, check_meta_key};
///
/// assert!(check_meta_key("com.example/attempt").is_ok());
/// assert!(check_meta_key("traceparent").is_ok());
/// assert_eq!(check_meta_key("com.mcp/attempt"), Err(MetaKeyError::Reserved));
/// assert_eq!(check_meta_key("com.example/an attempt"), Err(MetaKeyError::Name));
/// ```
pub fn check_meta_key(key: &str) -> Result<(), MetaKeyError> {
    let (prefix, name) = match key.rsplit_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if !prefix.split('.').all(is_label) {
            return Err(MetaKeyError::Label);
        }
        let second = prefix.split('.').nth(1).unwrap_or_default();
        let is_reserved = ["modelcontextprotocol", "mcp"].contains(&second);
        if is_reserved && prefix != SPECIFICATION_PREFIX {
            return Err(MetaKeyError::Reserved);
        }
    }
    match name.is_empty() || is_name(name) {
        true => Ok(()),
        false => Err(MetaKeyError::Name),
    }
}

/// Validates an extension identifier: a `_meta` key with a prefix and a name.
///
/// # Errors
///
/// If it is invalid.
///
/// # Examples
///
/// ```
/// use bowline_types::{MetaKeyError, check_extension_id};
///
/// assert!(check_extension_id("io.modelcontextprotocol/ui").is_ok());
/// assert_eq!(check_extension_id("ui"), Err(MetaKeyError::NoPrefix));
/// ```
pub fn check_extension_id(id: &str) -> Result<(), MetaKeyError> {
    check_meta_key(id)?;
    match id.rsplit_once('/') {
        None => Err(MetaKeyError::NoPrefix),
        Some((_, "")) => Err(MetaKeyError::Name),
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

/// The prefix that the specification uses.
const SPECIFICATION_PREFIX: &str = "io.modelcontextprotocol";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_validated_by_the_grammar() {
        for (key, expected) in [
            ("", Ok(())),
            ("a", Ok(())),
            ("progressToken", Ok(())),
            ("a-b_c.d", Ok(())),
            ("com.example/", Ok(())),
            ("com.example/a", Ok(())),
            ("com.example.mcp/a", Ok(())),
            ("c-3.x/0", Ok(())),
            ("mcp/a", Ok(())),
            ("io.modelcontextprotocol/related-task", Ok(())),
            ("-a", Err(MetaKeyError::Name)),
            ("a-", Err(MetaKeyError::Name)),
            ("a.", Err(MetaKeyError::Name)),
            ("a b", Err(MetaKeyError::Name)),
            ("ä", Err(MetaKeyError::Name)),
            ("/a", Err(MetaKeyError::Label)),
            ("com..example/a", Err(MetaKeyError::Label)),
            ("3com/a", Err(MetaKeyError::Label)),
            ("com-/a", Err(MetaKeyError::Label)),
            ("com_example/a", Err(MetaKeyError::Label)),
            ("a/b/c", Err(MetaKeyError::Label)),
            ("dev.mcp/a", Err(MetaKeyError::Reserved)),
            ("com.mcp.tools/a", Err(MetaKeyError::Reserved)),
            ("com.modelcontextprotocol/a", Err(MetaKeyError::Reserved)),
        ] {
            assert_eq!(check_meta_key(key), expected, "{key}");
        }
        for (id, expected) in [
            ("com.example/x", Ok(())),
            ("x", Err(MetaKeyError::NoPrefix)),
            ("com.example/", Err(MetaKeyError::Name)),
        ] {
            assert_eq!(check_extension_id(id), expected, "{id}");
        }
    }
}
