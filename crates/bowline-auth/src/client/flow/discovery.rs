//! Metadata discovery: the well-known URLs of RFC 9728, RFC 8414 and OpenID Connect, and the checks of the documents.

use std::collections::VecDeque;

use bowline::http::RedactedUrl;
use url::Url;

use crate::client::metadata::{ResourceMetadata, ServerMetadata};
use crate::client::{Error, Result};

/// Returns where the protected resource metadata of the MCP server may be: with the path of `server` first, then at the
/// root.
pub(super) fn resource_metadata_urls(server: &Url) -> VecDeque<Url> {
    const NAME: &str = "oauth-protected-resource";
    let mut urls = VecDeque::from([well_known(server, NAME, WellKnownPosition::BeforePath)]);
    if has_path(server) {
        urls.push_back(well_known(
            &at_root(server),
            NAME,
            WellKnownPosition::BeforePath,
        ));
    }
    urls
}

/// Returns where the metadata of the authorization server with this issuer URL may be. The root is used only if the
/// issuer has no path: on a shared host, the document at the root belongs to another tenant.
pub(super) fn server_metadata_urls(issuer: &Url) -> VecDeque<Url> {
    const OAUTH: &str = "oauth-authorization-server";
    const OPENID: &str = "openid-configuration";
    let mut urls = VecDeque::from([
        well_known(issuer, OAUTH, WellKnownPosition::BeforePath),
        well_known(issuer, OPENID, WellKnownPosition::BeforePath),
    ]);
    if has_path(issuer) {
        urls.push_back(well_known(issuer, OPENID, WellKnownPosition::AfterPath));
    }
    urls
}

/// Whether the well-known segment precedes or follows the path.
#[derive(Clone, Copy)]
enum WellKnownPosition {
    BeforePath,
    AfterPath,
}

fn well_known(base: &Url, name: &str, position: WellKnownPosition) -> Url {
    let path = base.path().trim_end_matches('/');
    let path = match position {
        WellKnownPosition::BeforePath => format!("/.well-known/{name}{path}"),
        WellKnownPosition::AfterPath => format!("{path}/.well-known/{name}"),
    };
    let mut url = at_root(base);
    url.set_path(&path);
    url
}

fn at_root(url: &Url) -> Url {
    let mut root = url.clone();
    root.set_path("/");
    root.set_query(None);
    root.set_fragment(None);
    root
}

fn has_path(url: &Url) -> bool {
    !url.path().trim_end_matches('/').is_empty()
}

/// Returns the origin of the MCP server as an issuer URL, without a trailing slash.
pub(super) fn origin(server: &Url) -> String {
    server.origin().ascii_serialization()
}

/// Checks that a document found at a well-known URL describes this MCP server, or a resource of the same origin whose
/// path is a prefix of the server's path, by whole segments.
pub(super) fn check_resource(server: &Url, metadata: &ResourceMetadata) -> Result<()> {
    let named = &metadata.resource;
    let mismatch = || {
        Error::untrusted(format!(
            "the metadata of {} describe another resource, `{}`",
            RedactedUrl::new(server),
            RedactedUrl::new(named)
        ))
    };
    let resource = Url::parse(named).map_err(|_| mismatch())?;
    let path = resource.path().trim_end_matches('/');
    let is_below = server
        .path()
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_same = resource.origin() == server.origin()
        && is_below
        && resource.fragment().is_none()
        && (resource.query().is_none() || resource.query() == server.query());
    if is_same { Ok(()) } else { Err(mismatch()) }
}

/// Checks a document that a challenge named. It can be anywhere on the host, so its location does not show which
/// resource it is for: `resource` must be the server itself (RFC 9728, section 3.3).
pub(super) fn check_same_resource(server: &Url, metadata: &ResourceMetadata) -> Result<()> {
    check_resource(server, metadata)?;
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    let named = Url::parse(&metadata.resource).ok();
    if named.is_some_and(|named| path(&named) == path(server)) {
        return Ok(());
    }
    Err(Error::untrusted(format!(
        "the metadata that {} named describe another resource, `{}`",
        RedactedUrl::new(server),
        RedactedUrl::new(&metadata.resource)
    )))
}

/// Checks that the `issuer` of the metadata is the expected one, byte for byte (RFC 8414, section 3.3).
pub(super) fn check_issuer(expected: &str, metadata: &ServerMetadata) -> Result<()> {
    if metadata.issuer == expected {
        return Ok(());
    }
    Err(Error::untrusted(format!(
        "the metadata of `{}` describe another issuer, `{}`",
        RedactedUrl::new(expected),
        RedactedUrl::new(&metadata.issuer)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(urls: VecDeque<Url>) -> Vec<String> {
        urls.into_iter().map(String::from).collect()
    }

    #[test]
    fn resource_metadata_urls_are_below_the_path_then_at_the_root() {
        let at = |server| texts(resource_metadata_urls(&Url::parse(server).unwrap()));

        assert_eq!(
            at("https://example.com/public/mcp?x=1"),
            [
                "https://example.com/.well-known/oauth-protected-resource/public/mcp",
                "https://example.com/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(
            at("https://example.com/"),
            ["https://example.com/.well-known/oauth-protected-resource"]
        );
    }

    #[test]
    fn server_metadata_urls_are_in_the_specified_order() {
        let at = |issuer| texts(server_metadata_urls(&Url::parse(issuer).unwrap()));

        assert_eq!(
            at("https://as.example"),
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            at("https://as.example/tenant1"),
            [
                "https://as.example/.well-known/oauth-authorization-server/tenant1",
                "https://as.example/.well-known/openid-configuration/tenant1",
                "https://as.example/tenant1/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn metadata_must_describe_the_server_or_a_resource_that_contains_it() {
        let server = Url::parse("https://example.com/public/mcp").unwrap();
        let describes = |resource: &str| {
            let metadata = serde_json::json!({"resource": resource});
            let metadata = serde_json::from_value(metadata).unwrap();
            check_resource(&server, &metadata).is_ok()
        };

        for resource in [
            "https://example.com/public/mcp",
            "https://example.com/public/mcp/",
            "https://example.com/public",
            "https://example.com",
            "https://example.com/",
            "HTTPS://EXAMPLE.com:443/public/mcp",
        ] {
            assert!(describes(resource), "{resource}");
        }
        for resource in [
            "https://evil.example/public/mcp",
            "https://example.com.evil.example/public/mcp",
            "http://example.com/public/mcp",
            "https://example.com:8443/public/mcp",
            "https://example.com/pub",
            "https://example.com/public/mcp/more",
            "https://example.com/public/mcp#x",
            "https://example.com/public/mcp?x=1",
            "/public/mcp",
            "",
        ] {
            assert!(!describes(resource), "{resource}");
        }
    }
}
