//! Where documents are looked for, and what of them is believed.

use std::collections::VecDeque;

use url::Url;

use crate::client::metadata::{ResourceMetadata, ServerMetadata};
use crate::client::{Error, Result};

/// Where a server may say who issues its tokens: below its own path first, then at the root.
pub(super) fn resource_documents(server: &Url) -> VecDeque<Url> {
    const NAME: &str = "oauth-protected-resource";
    let mut documents = VecDeque::from([well_known(server, NAME, Place::Before)]);
    if has_path(server) {
        documents.push_back(well_known(&at_root(server), NAME, Place::Before));
    }
    documents
}

/// Where an authorization server may describe itself. The root is asked only of an issuer without a path: the
/// document there would be that of somebody else.
pub(super) fn server_documents(issuer: &Url) -> VecDeque<Url> {
    const OAUTH: &str = "oauth-authorization-server";
    const OPENID: &str = "openid-configuration";
    let mut documents = VecDeque::from([
        well_known(issuer, OAUTH, Place::Before),
        well_known(issuer, OPENID, Place::Before),
    ]);
    if has_path(issuer) {
        documents.push_back(well_known(issuer, OPENID, Place::After));
    }
    documents
}

/// Whether the well-known part stands before or after the path.
#[derive(Clone, Copy)]
enum Place {
    Before,
    After,
}

fn well_known(base: &Url, name: &str, place: Place) -> Url {
    let path = base.path().trim_end_matches('/');
    let path = match place {
        Place::Before => format!("/.well-known/{name}{path}"),
        Place::After => format!("{path}/.well-known/{name}"),
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

/// The address of a server without its path, as an issuer would write it.
pub(super) fn origin(server: &Url) -> String {
    server.origin().ascii_serialization()
}

/// A document speaks for a server only if it is about that server, or about something that the server is
/// part of.
pub(super) fn check_resource(server: &Url, metadata: &ResourceMetadata) -> Result<()> {
    let named = &metadata.resource;
    let mismatch = || {
        Error::untrusted(format!(
            "the metadata of {server} is that of another resource, `{named}`"
        ))
    };
    let resource = Url::parse(named).map_err(|_| mismatch())?;
    let path = resource.path().trim_end_matches('/');
    let is_below = server
        .path()
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_it = resource.origin() == server.origin()
        && is_below
        && resource.fragment().is_none()
        && (resource.query().is_none() || resource.query() == server.query());
    if is_it { Ok(()) } else { Err(mismatch()) }
}

/// A document that a challenge named can be anywhere on the host, so that its place says nothing about which resource
/// it is for: it must name the server itself (RFC 9728, section 3.3).
pub(super) fn check_same_resource(server: &Url, metadata: &ResourceMetadata) -> Result<()> {
    check_resource(server, metadata)?;
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    let named = Url::parse(&metadata.resource).ok();
    if named.is_some_and(|named| path(&named) == path(server)) {
        return Ok(());
    }
    Err(Error::untrusted(format!(
        "the metadata that {server} names is that of another resource, `{}`",
        metadata.resource
    )))
}

/// An authorization server must call itself what it was looked for as, byte for byte.
pub(super) fn check_issuer(expected: &str, metadata: &ServerMetadata) -> Result<()> {
    if metadata.issuer == expected {
        return Ok(());
    }
    let named = &metadata.issuer;
    Err(Error::untrusted(format!(
        "the metadata of `{expected}` is that of another issuer, `{named}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(urls: VecDeque<Url>) -> Vec<String> {
        urls.into_iter().map(String::from).collect()
    }

    #[test]
    fn a_resource_is_looked_for_below_its_path_and_then_at_the_root() {
        let at = |server| texts(resource_documents(&Url::parse(server).unwrap()));

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
    fn an_authorization_server_is_looked_for_in_the_specified_order() {
        let at = |issuer| texts(server_documents(&Url::parse(issuer).unwrap()));

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
    fn metadata_speaks_for_a_server_only_if_it_is_about_it() {
        let server = Url::parse("https://example.com/public/mcp").unwrap();
        let speaks = |resource: &str| {
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
            assert!(speaks(resource), "{resource}");
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
            assert!(!speaks(resource), "{resource}");
        }
    }
}
