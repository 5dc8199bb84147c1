//! Headers that belong to one connection, and are not passed on.

use http::header::{self, HeaderMap, HeaderName};

/// Removes the headers that are about one connection only, and those that `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}

const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_of_one_connection_are_removed_and_all_others_are_kept() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Own"),
            ("keep-alive", "timeout=5"),
            ("x-own", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("mcp-name", "a"),
            ("accept", "a"),
            ("accept", "b"),
            ("authorization", "Bearer x"),
        ] {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }

        remove_hop_by_hop(&mut headers);

        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, ["accept", "authorization", "mcp-name"]);
        assert_eq!(headers.get_all("accept").iter().count(), 2);
    }
}
