//! [`route_request`]: the server of a request about one tool, prompt or resource, and what it is sent.

use bowline::{ErrorCode, Json, RpcError};
use bowline_types::{
    CallToolRequest, CompleteRequest, GetPromptRequest, Method, ReadResourceRequest,
    SubscribeRequest, UnsubscribeRequest,
};

use super::{Names, RawObject, UriRoutes};
use crate::config::{ItemKind, shortened};

/// A request with the server that it is for; returned by [`route_request`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoutedRequest {
    /// The server.
    pub server: String,
    /// The params with the name that the server knows.
    pub params: Json,
    /// What the request is about.
    pub kind: ItemKind,
    /// Its name or URI at the server.
    pub name: String,
}

/// Finds the server of a request that is about one tool, prompt or resource, and replaces the name in its params.
///
/// Returns `None` for all other methods, such as lists. `is_usable` says which servers are considered at all. Whether the
/// principal may use the tool, prompt or resource is for the caller to check, with
/// [`AccessRules`](crate::config::AccessRules).
///
/// # Errors
///
/// [`ErrorCode::INVALID_PARAMS`] if the params name nothing, or something unknown, and [`ErrorCode::RESOURCE_NOT_FOUND`] if
/// no server has the resource.
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline_bridge::many::{Names, UriRoutes, route_request};
///
/// let names = Names::new("__", [("files", None), ("git", None)])?;
/// let routes = UriRoutes::new([("files", Vec::new()), ("git", Vec::new())]);
/// let params = Json::parse(r#"{"name": "git__log", "arguments": {"max": 10.0}}"#)?;
/// let routed = route_request(&names, &routes, "tools/call", &params, |_| true)?.unwrap();
/// assert_eq!((&*routed.server, &*routed.name), ("git", "log"));
/// assert_eq!(routed.params.as_str(), r#"{"name":"log","arguments":{"max": 10.0}}"#);
/// assert_eq!(route_request(&names, &routes, "tools/list", &params, |_| true)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn route_request(
    names: &Names,
    routes: &UriRoutes,
    method: &str,
    params: &Json,
    is_usable: impl Fn(&str) -> bool,
) -> Result<Option<RoutedRequest>, RpcError> {
    let router = Router {
        names,
        routes,
        is_usable: &is_usable,
    };
    match method {
        CallToolRequest::NAME => router.by_name(ItemKind::Tool, params).map(Some),
        GetPromptRequest::NAME => router.by_name(ItemKind::Prompt, params).map(Some),
        ReadResourceRequest::NAME | SubscribeRequest::NAME | UnsubscribeRequest::NAME => {
            router.by_uri(params).map(Some)
        }
        CompleteRequest::NAME => router.completion(params).map(Some),
        _ => Ok(None),
    }
}

struct Router<'a> {
    names: &'a Names,
    routes: &'a UriRoutes,
    is_usable: &'a dyn Fn(&str) -> bool,
}

impl Router<'_> {
    fn by_name(&self, kind: ItemKind, params: &Json) -> Result<RoutedRequest, RpcError> {
        let object = parse(params)?;
        let outer = object.text("name").ok_or_else(|| missing("name"))?;
        let (server, name) = self.split(kind, &outer)?;
        let params = match *name == *outer {
            true => params.clone(),
            false => {
                let mut text = Vec::with_capacity(params.as_bytes().len());
                object.write_with(&mut text, "name", name);
                Json::from_valid(text.into())
            }
        };
        Ok(RoutedRequest {
            server: server.to_owned(),
            params,
            kind,
            name: name.to_owned(),
        })
    }

    fn by_uri(&self, params: &Json) -> Result<RoutedRequest, RpcError> {
        let uri = parse(params)?.text("uri").ok_or_else(|| missing("uri"))?;
        let server = self.routes.route(&uri, self.is_usable);
        let server = server.ok_or_else(|| unknown_item(ItemKind::Resource, &uri))?;
        Ok(RoutedRequest {
            server: server.to_owned(),
            params: params.clone(),
            kind: ItemKind::Resource,
            name: uri.into_owned(),
        })
    }

    fn completion(&self, params: &Json) -> Result<RoutedRequest, RpcError> {
        let object = parse(params)?;
        let reference = object.get("ref").ok_or_else(|| missing("ref"))?;
        let reference = RawObject::parse(reference.get()).map_err(|_| missing("ref"))?;
        match reference.text("type").as_deref() {
            Some("ref/prompt") => {
                let outer = reference.text("name").ok_or_else(|| missing("ref.name"))?;
                let (server, name) = self.split(ItemKind::Prompt, &outer)?;
                let mut inner = Vec::new();
                reference.write_with(&mut inner, "name", name);
                let mut text = Vec::with_capacity(params.as_bytes().len());
                object.write_raw_with(&mut text, "ref", &inner);
                Ok(RoutedRequest {
                    server: server.to_owned(),
                    params: Json::from_valid(text.into()),
                    kind: ItemKind::Prompt,
                    name: name.to_owned(),
                })
            }
            Some("ref/resource") => {
                let template = reference.text("uri").ok_or_else(|| missing("ref.uri"))?;
                let by_template = self.routes.template_server(&template, self.is_usable);
                // The reference may also be the URI of a resource.
                let server = by_template.or_else(|| self.routes.route(&template, self.is_usable));
                let server =
                    server.ok_or_else(|| unknown_item(ItemKind::ResourceTemplate, &template))?;
                Ok(RoutedRequest {
                    server: server.to_owned(),
                    params: params.clone(),
                    kind: ItemKind::ResourceTemplate,
                    name: template.into_owned(),
                })
            }
            _ => Err(missing("ref.type")),
        }
    }

    fn split<'n>(&self, kind: ItemKind, outer: &'n str) -> Result<(&str, &'n str), RpcError> {
        let found = self.names.split(outer);
        let found = found.filter(|(server, _)| (self.is_usable)(server));
        found.ok_or_else(|| unknown_item(kind, outer))
    }
}

fn parse(params: &Json) -> Result<RawObject<'_>, RpcError> {
    RawObject::parse(params.as_str()).map_err(RpcError::invalid_params)
}

/// A member that is there twice counts as missing, because the server might read the other one.
fn missing(member: &str) -> RpcError {
    let message = format!("expected one member `{member}` with a valid value");
    RpcError::new(ErrorCode::INVALID_PARAMS, message)
}

/// Returns the error for a name that no server has, or that the principal may not use: the two must look the same.
pub(crate) fn unknown_item(kind: ItemKind, name: &str) -> RpcError {
    let what = match kind {
        ItemKind::Tool => "tool",
        ItemKind::Prompt => "prompt",
        ItemKind::ResourceTemplate => "resource template",
        ItemKind::Resource => {
            let message = format!("resource not found: {}", shortened(name));
            let data = serde_json::json!({ "uri": name });
            return RpcError::new(ErrorCode::RESOURCE_NOT_FOUND, message).with_data(data);
        }
    };
    let message = format!("unknown {what} `{}`", shortened(name));
    RpcError::new(ErrorCode::INVALID_PARAMS, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NamePattern;

    fn route(method: &str, params: &str) -> Result<Option<RoutedRequest>, RpcError> {
        let names = Names::new("__", [("a", None), ("b", None), ("hidden", None)]).unwrap();
        let mut routes = UriRoutes::new([
            ("a", vec![NamePattern::new("a:*")]),
            ("b", Vec::new()),
            ("hidden", vec![NamePattern::new("h:*")]),
        ]);
        let page = Json::from_static(r#"{"resourceTemplates": [{"uriTemplate": "b:{x}"}]}"#);
        routes.learn_page("b", ItemKind::ResourceTemplate, &page);
        let params = Json::parse(params.to_owned()).unwrap();
        route_request(&names, &routes, method, &params, |server| {
            server != "hidden"
        })
    }

    fn routed(method: &str, params: &str) -> (String, String, String) {
        let routed = route(method, params).unwrap().unwrap();
        (routed.server, routed.name, routed.params.to_string())
    }

    fn error_of(method: &str, params: &str) -> (ErrorCode, String) {
        let error = route(method, params).unwrap_err();
        (error.code, error.message)
    }

    #[test]
    fn requests_reach_the_server_under_its_own_name() {
        let call = routed(
            "tools/call",
            r#"{"_meta": {"x": 1E1}, "name": "b__t", "arguments": {"n": 1.0}}"#,
        );
        let params = r#"{"_meta":{"x": 1E1},"name":"t","arguments":{"n": 1.0}}"#;
        assert_eq!(call, ("b".into(), "t".into(), params.into()));
        let prompt = routed("prompts/get", r#"{"name":"a__p"}"#);
        assert_eq!(prompt, ("a".into(), "p".into(), r#"{"name":"p"}"#.into()));
        for method in [
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
        ] {
            let params = r#"{"uri": "b:1"}"#;
            assert_eq!(
                routed(method, params),
                ("b".into(), "b:1".into(), params.into())
            );
        }
    }

    #[test]
    fn completions_follow_their_reference() {
        let prompt =
            r#"{"ref": {"type": "ref/prompt", "name": "b__p", "x": 1}, "argument": {"name": "q"}}"#;
        let params = r#"{"ref":{"type":"ref/prompt","name":"p","x":1},"argument":{"name": "q"}}"#;
        assert_eq!(
            routed("completion/complete", prompt),
            ("b".into(), "p".into(), params.into())
        );
        let template = r#"{"ref": {"type": "ref/resource", "uri": "b:{x}"}}"#;
        assert_eq!(routed("completion/complete", template).0, "b");
        let resource = r#"{"ref": {"type": "ref/resource", "uri": "a:1"}}"#;
        assert_eq!(routed("completion/complete", resource).0, "a");
    }

    #[test]
    fn what_is_unknown_or_hidden_is_refused() {
        let invalid = |text: &str| (ErrorCode::INVALID_PARAMS, text.to_owned());

        assert_eq!(
            error_of("tools/call", r#"{"name": "x"}"#),
            invalid("unknown tool `x`")
        );
        let hidden = error_of("prompts/get", r#"{"name": "hidden__x"}"#);
        assert_eq!(hidden, invalid("unknown prompt `hidden__x`"));
        let (code, _) = error_of("resources/read", r#"{"uri": "h:1"}"#);
        assert_eq!(code, ErrorCode::RESOURCE_NOT_FOUND);
        for params in [
            "{}",
            r#"{"name": 1}"#,
            r#"{"name": "a__x", "name": "b__x"}"#,
        ] {
            let expected = "expected one member `name` with a valid value";
            assert_eq!(
                error_of("tools/call", params),
                invalid(expected),
                "{params}"
            );
        }
        for params in [
            "{}",
            r#"{"ref": 1}"#,
            r#"{"ref": {}}"#,
            r#"{"ref": {"type": "ref/prompt"}}"#,
        ] {
            assert_eq!(
                error_of("completion/complete", params).0,
                ErrorCode::INVALID_PARAMS
            );
        }
        assert_eq!(error_of("tools/call", "[]").0, ErrorCode::INVALID_PARAMS);
        assert_eq!(route("x/custom", "{}").unwrap(), None);
    }
}
