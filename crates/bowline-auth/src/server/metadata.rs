//! The protected resource metadata that the server publishes (RFC 9728).

use std::collections::BTreeSet;

use bowline::http::RedactedUrl;
use bowline::{Error, Result};
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CACHE_CONTROL, CONTENT_TYPE,
};
use http::{HeaderValue, Response, StatusCode, Uri};
use serde::Serialize;

use super::algorithm::NAMES;

/// The resource identifier: the URL of this server, which tokens carry as `aud`.
#[derive(Clone, Debug)]
pub(super) struct ResourceIdentifier {
    text: String,
    /// The scheme and authority.
    origin: String,
    /// The path, without a trailing slash.
    path: String,
}

/// The other members of the document.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceInfo {
    pub(super) issuers: Vec<String>,
    pub(super) scopes: BTreeSet<String>,
    pub(super) name: Option<String>,
    pub(super) documentation: Option<String>,
    pub(super) requires_dpop: bool,
}

impl ResourceIdentifier {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let misuse = |why: &str| Error::Misuse {
            what: format!(
                "`{}` is not a valid resource identifier: {why}",
                RedactedUrl::new(text)
            ),
        };
        let uri: Uri = text.parse().map_err(|_| misuse("expected a URL"))?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(misuse("expected an http:// or https:// URL"));
        };
        if text.contains(['#', '?', '@', '"', '\\']) {
            return Err(misuse(
                "it must not contain a query, a fragment, credentials, quotes or backslashes",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            origin: format!("{}://{authority}", uri.scheme_str().unwrap_or("https")),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the accepted values of `aud`. Without a path, the URL with and without a trailing slash is the same.
    pub(super) fn audiences(&self) -> BTreeSet<String> {
        let mut audiences = BTreeSet::from([self.text.clone()]);
        if self.path.is_empty() {
            audiences.extend([self.origin.clone(), format!("{}/", self.origin)]);
        }
        audiences
    }

    /// Returns the path of the document.
    pub(super) fn metadata_path(&self) -> String {
        format!("{WELL_KNOWN}{}", self.path)
    }

    /// Returns the URL of the document.
    pub(super) fn metadata_url(&self) -> String {
        format!("{}{}", self.origin, self.metadata_path())
    }

    /// Returns whether the document is at this path: that of the resource, or that of the host.
    pub(super) fn is_metadata_path(&self, path: &str) -> bool {
        path == WELL_KNOWN || path.strip_prefix(WELL_KNOWN) == Some(&self.path)
    }

    /// Returns the URL of another path on the same host.
    fn sibling(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// Returns the URLs that a client may have sent a request to: the one with the path of the request and, if that is
    /// the path of the resource, the resource identifier.
    pub(super) fn urls_of(&self, prefix: &str, path: &str) -> Vec<String> {
        let path = format!("{}{path}", prefix.trim_end_matches('/'));
        let mut urls = vec![self.sibling(&path)];
        if path.trim_end_matches('/') == self.path {
            urls.push(self.text.clone());
        }
        urls
    }

    /// Returns the response with the document.
    pub(super) fn document(&self, info: &ResourceInfo) -> Response<Bytes> {
        let document = MetadataDocument {
            resource: &self.text,
            authorization_servers: &info.issuers,
            scopes_supported: info
                .scopes
                .iter()
                .filter(|scope| *scope != OFFLINE_ACCESS)
                .collect(),
            bearer_methods_supported: ["header"],
            resource_name: info.name.as_deref(),
            resource_documentation: info.documentation.as_deref(),
            dpop_signing_alg_values_supported: NAMES.iter().map(|(name, _)| *name).collect(),
            dpop_bound_access_tokens_required: info.requires_dpop,
        };
        let document = serde_json::to_vec(&document).expect("strings serialize to JSON");
        let mut response = Response::new(Bytes::from(document));
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, "application/json"),
            (CACHE_CONTROL, "public, max-age=3600"),
            // Public, also for clients in web pages.
            (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Returns the response to a CORS preflight for the document: clients in web pages send `MCP-Protocol-Version` with
/// their request, which browsers do not allow without it.
pub(super) fn preflight() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "*"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[derive(Serialize)]
struct MetadataDocument<'a> {
    resource: &'a str,
    authorization_servers: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes_supported: Vec<&'a String>,
    bearer_methods_supported: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_documentation: Option<&'a str>,
    dpop_signing_alg_values_supported: Vec<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dpop_bound_access_tokens_required: bool,
}

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Left out of the metadata: it concerns the client and its authorization server only.
const OFFLINE_ACCESS: &str = "offline_access";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_url_contains_the_path_of_the_resource() {
        for (resource, url) in [
            (
                "https://h/mcp",
                "https://h/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://h:8443/a/b/",
                "https://h:8443/.well-known/oauth-protected-resource/a/b",
            ),
            (
                "https://h",
                "https://h/.well-known/oauth-protected-resource",
            ),
            (
                "https://h/",
                "https://h/.well-known/oauth-protected-resource",
            ),
        ] {
            let resource = ResourceIdentifier::parse(resource).unwrap();

            assert_eq!(resource.metadata_url(), url);
            assert!(resource.is_metadata_path(&resource.metadata_path()));
            assert!(resource.is_metadata_path("/.well-known/oauth-protected-resource"));
            assert!(!resource.is_metadata_path("/.well-known/oauth-protected-resource/other"));
        }
    }

    #[test]
    fn invalid_resource_identifiers_are_refused() {
        for text in [
            "",
            "/mcp",
            "h/mcp",
            "ftp://h/mcp",
            "https://h/mcp#a",
            "https://h/mcp?a=b",
            "https://a@h/",
        ] {
            assert!(ResourceIdentifier::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_resource_without_a_path_may_end_with_a_slash() {
        let audiences = |text: &str| ResourceIdentifier::parse(text).unwrap().audiences();

        assert_eq!(audiences("https://h"), audiences("https://h/"));
        assert_eq!(audiences("https://h/mcp").len(), 1);
    }

    #[test]
    fn the_document_omits_the_offline_access_scope() {
        let info = ResourceInfo {
            issuers: vec!["https://id.example".into()],
            scopes: BTreeSet::from(["files:read".into(), "offline_access".into()]),
            ..ResourceInfo::default()
        };

        let document = ResourceIdentifier::parse("https://h/mcp")
            .unwrap()
            .document(&info);

        let document: serde_json::Value = serde_json::from_slice(document.body()).unwrap();
        assert_eq!(document["resource"], "https://h/mcp");
        assert_eq!(document["authorization_servers"][0], "https://id.example");
        assert_eq!(
            document["scopes_supported"],
            serde_json::json!(["files:read"])
        );
        assert_eq!(
            document["bearer_methods_supported"],
            serde_json::json!(["header"])
        );
    }
}
