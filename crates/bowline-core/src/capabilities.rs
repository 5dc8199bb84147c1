//! The server capabilities that requests and subscriptions need.

use bowline_types::{
    CallToolRequest, CompleteRequest, GetPromptRequest, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, Method,
    ReadResourceRequest, ServerCapabilities, SetLevelRequest, SubscriptionFilter,
};

/// A capability that a server declares to offer a group of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerCapability {
    /// `tools`
    Tools,
    /// `prompts`
    Prompts,
    /// `resources`
    Resources,
    /// `completions`
    Completions,
    /// `logging`
    Logging,
}

impl ServerCapability {
    /// Returns the capability that a request needs, if it needs one.
    #[must_use]
    pub fn for_method(method: &str) -> Option<Self> {
        match method {
            ListToolsRequest::NAME | CallToolRequest::NAME => Some(Self::Tools),
            ListPromptsRequest::NAME | GetPromptRequest::NAME => Some(Self::Prompts),
            ListResourcesRequest::NAME
            | ListResourceTemplatesRequest::NAME
            | ReadResourceRequest::NAME => Some(Self::Resources),
            CompleteRequest::NAME => Some(Self::Completions),
            SetLevelRequest::NAME => Some(Self::Logging),
            _ => None,
        }
    }

    /// Returns the member of `ServerCapabilities`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Completions => "completions",
            Self::Logging => "logging",
        }
    }

    /// Returns whether the server declares the capability.
    #[must_use]
    pub fn is_declared(self, declared: &ServerCapabilities) -> bool {
        match self {
            Self::Tools => declared.tools.is_some(),
            Self::Prompts => declared.prompts.is_some(),
            Self::Resources => declared.resources.is_some(),
            Self::Completions => declared.completions.is_some(),
            Self::Logging => declared.logging.is_some(),
        }
    }
}

/// Removes from a filter the notifications that the server does not declare.
#[must_use]
pub fn restrict_filter(
    mut filter: SubscriptionFilter,
    declared: &ServerCapabilities,
) -> SubscriptionFilter {
    let (tools, prompts) = (declared.tools.as_ref(), declared.prompts.as_ref());
    let resources = declared.resources.as_ref();
    let keep = |wanted: &mut Option<bool>, declared: Option<bool>| {
        *wanted = wanted.filter(|wanted| *wanted && declared == Some(true));
    };
    keep(
        &mut filter.tools_list_changed,
        tools.and_then(|tools| tools.list_changed),
    );
    keep(
        &mut filter.prompts_list_changed,
        prompts.and_then(|prompts| prompts.list_changed),
    );
    keep(
        &mut filter.resources_list_changed,
        resources.and_then(|resources| resources.list_changed),
    );
    if resources.and_then(|resources| resources.subscribe) != Some(true) {
        filter.resource_subscriptions = None;
    }
    filter
}

#[cfg(test)]
mod tests {
    use bowline_types::Json;

    use super::*;

    #[test]
    fn a_filter_keeps_what_is_wanted_and_declared() {
        let declared =
            r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}}"#;
        let declared = Json::parse(declared).unwrap().decode().unwrap();
        let wanted =
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a"]}"#;
        let wanted: SubscriptionFilter = Json::parse(wanted).unwrap().decode().unwrap();

        let kept = restrict_filter(wanted.clone(), &declared);

        assert_eq!(kept.tools_list_changed, Some(true));
        assert_eq!(kept.prompts_list_changed, None);
        assert_eq!(kept.resource_subscriptions, wanted.resource_subscriptions);
        let none = restrict_filter(wanted, &ServerCapabilities::default());
        assert_eq!(none, SubscriptionFilter::default());
    }

    #[test]
    fn a_capability_is_declared_by_the_member_of_its_name() {
        for method in [
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
            "logging/setLevel",
        ] {
            let capability = ServerCapability::for_method(method).unwrap();
            let declared = format!(r#"{{"{}":{{}}}}"#, capability.name());
            let declared = Json::parse(declared).unwrap().decode().unwrap();

            assert!(capability.is_declared(&declared), "{method}");
            assert!(!capability.is_declared(&ServerCapabilities::default()));
        }
        assert_eq!(ServerCapability::for_method("server/discover"), None);
    }
}
