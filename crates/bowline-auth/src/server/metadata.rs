//! What this server says of itself to clients that want a token: RFC 9728.

use std::collections::BTreeSet;

use bowline::{Error, Result};
use bytes::Bytes;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, Uri};
use serde::Serialize;

use super::algorithm::NAMES;

/// The URL by which clients name this server, and audiences too.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    text: String,
    /// Scheme and authority.
    origin: String,
    /// Without a slash at its end.
    path: String,
}

/// What the document says besides.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) issuers: Vec<String>,
    pub(super) scopes: BTreeSet<String>,
    pub(super) name: Option<String>,
    pub(super) documentation: Option<String>,
    pub(super) requires_dpop: bool,
}

impl Resource {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let misuse = |why: &str| Error::Misuse {
            what: format!("`{text}` cannot name a server that is protected: {why}"),
        };
        let uri: Uri = text.parse().map_err(|_| misuse("it is no URL"))?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(misuse("it is no http:// or https:// URL"));
        };
        if text.contains(['#', '?', '@', '"', '\\']) {
            return Err(misuse(
                "it has a query, a fragment, a user or a quote in it",
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

    /// What may stand in `aud`. A URL without a path is the same with a slash, and many programs add it.
    pub(super) fn audiences(&self) -> BTreeSet<String> {
        let mut audiences = BTreeSet::from([self.text.clone()]);
        if self.path.is_empty() {
            audiences.extend([self.origin.clone(), format!("{}/", self.origin)]);
        }
        audiences
    }

    /// The path of the document, where this server is.
    pub(super) fn metadata_path(&self) -> String {
        format!("{WELL_KNOWN}{}", self.path)
    }

    /// The URL of the document.
    pub(super) fn metadata_url(&self) -> String {
        format!("{}{}", self.origin, self.metadata_path())
    }

    /// Whether the document is at this path: its own, or that of the host.
    pub(super) fn is_metadata_path(&self, path: &str) -> bool {
        path == WELL_KNOWN || path.strip_prefix(WELL_KNOWN) == Some(&self.path)
    }

    /// The URL of another path of the same host.
    fn sibling(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// The URLs under which a client may know what it sends a request to: the one with the request's path and, if that
    /// is the path of the resource, the name of the resource.
    pub(super) fn urls_of(&self, prefix: &str, path: &str) -> Vec<String> {
        let path = format!("{}{path}", prefix.trim_end_matches('/'));
        let mut urls = vec![self.sibling(&path)];
        if path.trim_end_matches('/') == self.path {
            urls.push(self.text.clone());
        }
        urls
    }

    /// The response that holds the document.
    pub(super) fn document(&self, about: &About) -> Response<Bytes> {
        let document = Document {
            resource: &self.text,
            authorization_servers: &about.issuers,
            scopes_supported: about
                .scopes
                .iter()
                .filter(|scope| *scope != OFFLINE)
                .collect(),
            bearer_methods_supported: ["header"],
            resource_name: about.name.as_deref(),
            resource_documentation: about.documentation.as_deref(),
            dpop_signing_alg_values_supported: NAMES.iter().map(|(name, _)| *name).collect(),
            dpop_bound_access_tokens_required: about.requires_dpop,
        };
        let document = serde_json::to_vec(&document).expect("texts have a JSON form");
        let mut response = Response::new(Bytes::from(document));
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, "application/json"),
            (CACHE_CONTROL, "public, max-age=3600"),
            // It is for everybody, clients in web pages included.
            (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

#[derive(Serialize)]
struct Document<'a> {
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
/// Between a client and its authorization server, and no business of ours.
const OFFLINE: &str = "offline_access";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_where_the_path_of_the_server_puts_it() {
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
            let resource = Resource::parse(resource).unwrap();

            assert_eq!(resource.metadata_url(), url);
            assert!(resource.is_metadata_path(&resource.metadata_path()));
            assert!(resource.is_metadata_path("/.well-known/oauth-protected-resource"));
            assert!(!resource.is_metadata_path("/.well-known/oauth-protected-resource/other"));
        }
    }

    #[test]
    fn what_cannot_name_a_server_is_refused() {
        for text in [
            "",
            "/mcp",
            "h/mcp",
            "ftp://h/mcp",
            "https://h/mcp#a",
            "https://h/mcp?a=b",
            "https://a@h/",
        ] {
            assert!(Resource::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_without_a_path_may_be_written_with_a_slash() {
        let audiences = |text: &str| Resource::parse(text).unwrap().audiences();

        assert_eq!(audiences("https://h"), audiences("https://h/"));
        assert_eq!(audiences("https://h/mcp").len(), 1);
    }

    #[test]
    fn the_document_says_where_to_get_a_token_and_nothing_of_offline_access() {
        let about = About {
            issuers: vec!["https://id.example".into()],
            scopes: BTreeSet::from(["files:read".into(), "offline_access".into()]),
            ..About::default()
        };

        let document = Resource::parse("https://h/mcp").unwrap().document(&about);

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
