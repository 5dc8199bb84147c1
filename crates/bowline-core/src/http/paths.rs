//! Which paths of a server are MCP endpoints.

/// The paths that a service answers. Every other is not found.
///
/// A slash at the end makes no difference. What is below `/.well-known/` is answered only if it is named: clients look
/// there for metadata, and take whatever answers for that.
///
/// # Examples
///
/// ```
/// use bowline_core::http::paths::Paths;
///
/// let paths = Paths::only(["/mcp"]);
/// assert!(paths.has("/mcp") && paths.has("/mcp/"));
/// assert!(!paths.has("/register"));
///
/// assert!(Paths::any().has("/tools"));
/// assert!(!Paths::any().has("/.well-known/oauth-protected-resource"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Without a slash at the end; `None` means any.
    named: Option<Vec<String>>,
}

impl Paths {
    /// Every path, for a service behind a router.
    #[must_use]
    pub const fn any() -> Self {
        Self { named: None }
    }

    /// These paths.
    #[must_use]
    pub fn only(paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let named = paths.into_iter().map(|path| {
            let path: String = path.into();
            trimmed(&path).to_owned()
        });
        Self {
            named: Some(named.collect()),
        }
    }

    /// Whether the path of a request, without its query, is one of them.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        match &self.named {
            Some(named) => named.iter().any(|own| own == trimmed(path)),
            None => !path.starts_with(WELL_KNOWN),
        }
    }
}

impl Default for Paths {
    fn default() -> Self {
        Self::any()
    }
}

fn trimmed(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Reserved by RFC 8615 for metadata about a whole host.
const WELL_KNOWN: &str = "/.well-known/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_with_and_without_a_slash_at_its_end() {
        let paths = Paths::only(["/", "/mcp", "/v1/tools/"]);

        for (path, found) in [
            ("/", true),
            ("", true),
            ("/mcp", true),
            ("/mcp/", true),
            ("/v1/tools", true),
            ("/v1/tools/", true),
            ("//", false),
            ("/mcp//", false),
            ("/MCP", false),
            ("/mcp/more", false),
            ("/v1", false),
            ("/.well-known/oauth-authorization-server", false),
            ("/.well-known/oauth-protected-resource/mcp", false),
        ] {
            assert_eq!(paths.has(path), found, "{path:?}");
        }
    }

    #[test]
    fn metadata_is_found_only_where_it_is_named() {
        let metadata = "/.well-known/oauth-protected-resource";

        assert!(!Paths::any().has(metadata));
        assert!(Paths::only([metadata]).has(metadata));
        assert!(Paths::any().has("/well-known/mcp"));
    }
}
