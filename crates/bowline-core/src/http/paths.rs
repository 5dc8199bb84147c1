//! The paths of a server that are MCP endpoints.

use crate::shortened;

/// The paths that a service answers; others get status 404.
///
/// A trailing slash is ignored. Paths below `/.well-known/` match only if they are listed: clients probe there for
/// metadata, and would take an MCP response for it.
///
/// # Examples
///
/// ```
/// use bowline_core::http::paths::EndpointPaths;
///
/// let paths = EndpointPaths::only(["/mcp"]);
/// assert!(paths.matches("/mcp") && paths.matches("/mcp/"));
/// assert!(!paths.matches("/register"));
///
/// assert!(EndpointPaths::any().matches("/tools"));
/// assert!(!EndpointPaths::any().matches("/.well-known/oauth-protected-resource"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPaths {
    /// Without trailing slashes, except `/`; `None` means any path.
    listed: Option<Vec<String>>,
}

impl EndpointPaths {
    /// Matches every path outside of `/.well-known/`; for a service behind a router.
    #[must_use]
    pub const fn any() -> Self {
        Self { listed: None }
    }

    /// Matches these paths only.
    #[must_use]
    pub fn only(paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let listed = paths.into_iter().map(|path| {
            let path: String = path.into();
            match without_trailing_slash(&path) {
                "" => "/".to_owned(),
                path => path.to_owned(),
            }
        });
        Self {
            listed: Some(listed.collect()),
        }
    }

    /// Describes a path that does not match, and names those that do.
    #[must_use]
    pub fn not_found(&self, path: &str) -> String {
        let path = shortened(path);
        let listed = self.listed.iter().flatten();
        let listed: Vec<_> = listed.map(|own| format!("`{own}`")).collect();
        match &*listed {
            [] => format!("no MCP endpoint at `{path}`"),
            [own] => format!("no MCP endpoint at `{path}`; it is at {own}"),
            several => format!(
                "no MCP endpoint at `{path}`; there are {}",
                several.join(", ")
            ),
        }
    }

    /// Returns whether the path of a request, without its query, matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        match &self.listed {
            Some(listed) => {
                let path = without_trailing_slash(path);
                listed.iter().any(|own| without_trailing_slash(own) == path)
            }
            None => !path.starts_with(WELL_KNOWN),
        }
    }
}

impl Default for EndpointPaths {
    fn default() -> Self {
        Self::any()
    }
}

fn without_trailing_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Reserved by RFC 8615 for metadata about a whole host.
const WELL_KNOWN: &str = "/.well-known/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_with_and_without_a_trailing_slash() {
        let paths = EndpointPaths::only(["/", "/mcp", "/v1/tools/"]);

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
            assert_eq!(paths.matches(path), found, "{path:?}");
        }
    }

    #[test]
    fn a_path_that_does_not_match_is_described_with_those_that_do() {
        for (paths, text) in [
            (EndpointPaths::any(), "no MCP endpoint at `/a`"),
            (
                EndpointPaths::only(["/mcp/"]),
                "no MCP endpoint at `/a`; it is at `/mcp`",
            ),
            (
                EndpointPaths::only(["/", "/sse"]),
                "no MCP endpoint at `/a`; there are `/`, `/sse`",
            ),
        ] {
            assert_eq!(paths.not_found("/a"), text);
        }
        let long = EndpointPaths::any().not_found(&"/a".repeat(10_000));
        assert!(long.len() < 1000, "{}", long.len());
    }

    #[test]
    fn metadata_paths_match_only_if_they_are_listed() {
        let metadata = "/.well-known/oauth-protected-resource";

        assert!(!EndpointPaths::any().matches(metadata));
        assert!(EndpointPaths::only([metadata]).matches(metadata));
        assert!(EndpointPaths::any().matches("/well-known/mcp"));
    }
}
