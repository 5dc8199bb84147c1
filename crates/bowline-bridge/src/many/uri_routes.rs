//! [`UriRoutes`]: which server a resource is read from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bowline::Json;
use bowline::server::UriTemplate;
use serde_json::value::RawValue;

use super::page_merger::{key_of, member_of};
use super::raw_object::RawObject;
use crate::config::{ItemKind, NamePattern, shortened};

/// Finds the server of a resource by its URI.
///
/// Resources keep their URIs: they occur in texts, in links of results and in the arguments of tools, where a bridge
/// cannot rewrite them. The server of a URI is the first of
///
/// 1. the server with the most precise pattern in its setting `uris` that matches,
/// 2. a server that has listed the URI,
/// 3. a server that has listed a template that matches, that with the most literal text first,
/// 4. a server that has linked to the URI in a result,
/// 5. the only server, if there is only one.
///
/// Among equals, the first in the order of names counts. A list should omit resources of a server that requests for
/// them do not reach.
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline_bridge::config::{ItemKind, NamePattern};
/// use bowline_bridge::many::UriRoutes;
///
/// let files = vec![NamePattern::new("file:///*")];
/// let mut routes = UriRoutes::new([("files", files), ("git", Vec::new())]);
/// let page = Json::parse(r#"{"resourceTemplates": [{"uriTemplate": "git://{repository}/log"}]}"#)?;
/// routes.learn_page("git", ItemKind::ResourceTemplate, &page);
/// assert_eq!(routes.route("file:///a", |_| true), Some("files"));
/// assert_eq!(routes.route("git://bowline/log", |_| true), Some("git"));
/// assert_eq!(routes.route("git://bowline/log", |server| server != "git"), Some("files"), "the only one left");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct UriRoutes {
    servers: BTreeMap<String, ServerUris>,
}

#[derive(Debug, Default)]
struct ServerUris {
    patterns: Vec<NamePattern>,
    listed: UriSet,
    /// What results link to. A list counts more: a tool can be made to link to anything.
    linked: UriSet,
    templates: BTreeMap<String, TemplateMatcher>,
    /// The length of all templates.
    template_bytes: usize,
}

/// The latest URIs, up to limits of their number and their size.
#[derive(Debug, Default)]
struct UriSet {
    uris: BTreeSet<Arc<str>>,
    /// The same, oldest first.
    order: VecDeque<Arc<str>>,
    /// The size of all.
    bytes: usize,
}

/// How much work templates may still cause. A server chooses its templates, and their product with the URI is what a
/// match costs.
#[derive(Debug)]
pub(crate) struct MatchBudget(usize);

impl MatchBudget {
    /// Returns the budget of one URI.
    pub(crate) fn for_one() -> Self {
        Self(16 * 1024 * 1024)
    }

    /// Returns the budget of a list, most of whose URIs are found without templates.
    pub(crate) fn for_list() -> Self {
        Self(16 * 1024 * 1024)
    }

    /// Pays for a match; returns `false` if the rest is not enough.
    fn allows(&mut self, template: &str, uri: &str) -> bool {
        // Most templates differ from the URI in the text before their first expression, and cost only that.
        let literal = template.split('{').next().unwrap_or_default();
        let cost = match uri.starts_with(literal) {
            true => template.len().saturating_mul(uri.len()),
            false => literal.len(),
        };
        let rest = self.0.checked_sub(cost);
        // Cheaper ones may follow one that costs too much.
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

#[derive(Debug)]
enum TemplateMatcher {
    Template(Box<UriTemplate>),
    /// The text before the first expression, of a template that cannot be matched unambiguously.
    Prefix(String),
}

impl UriRoutes {
    /// Creates routes for servers with the patterns of their setting `uris`.
    pub fn new<'a>(servers: impl IntoIterator<Item = (&'a str, Vec<NamePattern>)>) -> Self {
        let servers = servers.into_iter().map(|(server, patterns)| {
            let uris = ServerUris {
                patterns,
                ..ServerUris::default()
            };
            (server.to_owned(), uris)
        });
        Self {
            servers: servers.collect(),
        }
    }

    /// Replaces the servers and their patterns, as after a reload. What was learned about a server is kept if `keep`
    /// returns `true` for it.
    pub fn set_servers<'a>(
        &mut self,
        servers: impl IntoIterator<Item = (&'a str, Vec<NamePattern>)>,
        keep: impl Fn(&str) -> bool,
    ) {
        let mut old = std::mem::replace(self, Self::new(servers));
        for (server, uris) in &mut self.servers {
            let learned = old.servers.remove(server).filter(|_| keep(server));
            if let Some(learned) = learned {
                let patterns = std::mem::take(&mut uris.patterns);
                *uris = ServerUris {
                    patterns,
                    ..learned
                };
            }
        }
    }

    /// Remembers the resources or templates of a page. Other lists, and text that is not such a page, are ignored.
    pub fn learn_page(&mut self, server: &str, kind: ItemKind, page: &Json) {
        let Some(uris) = self.servers.get_mut(server) else {
            return;
        };
        let page = RawObject::parse(page.as_str()).ok();
        let items = page.and_then(|page| page.get(member_of(kind)));
        let items: Option<Vec<&RawValue>> =
            items.and_then(|items| serde_json::from_str(items.get()).ok());
        for item in items.into_iter().flatten() {
            let item = RawObject::parse(item.get()).ok();
            let Some(key) = item.and_then(|item| item.text(key_of(kind))) else {
                continue;
            };
            match kind {
                ItemKind::Resource => uris.listed.insert(&key),
                ItemKind::ResourceTemplate => uris.learn_template(&key),
                ItemKind::Tool | ItemKind::Prompt => return,
            }
        }
    }

    /// Remembers that a server has linked to a resource.
    pub fn learn(&mut self, server: &str, uri: &str) {
        if let Some(uris) = self.servers.get_mut(server) {
            uris.linked.insert(uri);
        }
    }

    /// Remembers the resources that the result of a tool, or the messages of a prompt, link to or embed. They need not be
    /// listed.
    pub fn learn_links(&mut self, server: &str, result: &Json) {
        // Results are large and links are rare.
        if !result.as_str().contains("\"uri\"") {
            return;
        }
        let Ok(result) = result.decode::<LinkingResult>() else {
            return;
        };
        let messages = result.messages.into_iter().map(|message| message.content);
        for block in result.content.into_iter().chain(messages) {
            let embedded = block.resource.and_then(|resource| resource.uri);
            for uri in block.uri.into_iter().chain(embedded) {
                self.learn(server, &uri);
            }
        }
    }

    /// Returns the server of a resource. `is_usable` says which servers are considered at all, such as those that the
    /// principal may use.
    pub fn route(&self, uri: &str, is_usable: impl Fn(&str) -> bool) -> Option<&str> {
        self.route_within(uri, is_usable, &mut MatchBudget::for_one())
    }

    /// As [`route`](Self::route), with a budget for the templates of servers, which is used up.
    pub(crate) fn route_within(
        &self,
        uri: &str,
        is_usable: impl Fn(&str) -> bool,
        budget: &mut MatchBudget,
    ) -> Option<&str> {
        let usable: Vec<_> = (self.servers.iter())
            .filter(|(server, _)| is_usable(server))
            .collect();
        let by_pattern = best(
            usable
                .iter()
                .map(|(server, uris)| (*server, uris.pattern(uri))),
        );
        let listed = || {
            usable
                .iter()
                .find(|(_, uris)| uris.listed.uris.contains(uri))
        };
        let linked = || {
            usable
                .iter()
                .find(|(_, uris)| uris.linked.uris.contains(uri))
        };
        let by_template = || {
            // Each has its share, so that the templates of one cost no other its own.
            let with_templates = usable.iter().filter(|(_, uris)| !uris.templates.is_empty());
            let share = budget.0 / with_templates.clone().count().max(1);
            best(with_templates.map(|(server, uris)| {
                let mut own = MatchBudget(share);
                let found = uris.template(uri, &mut own);
                budget.0 -= share - own.0;
                (*server, found)
            }))
        };
        by_pattern
            .or_else(|| listed().map(|(server, _)| *server))
            .or_else(by_template)
            .or_else(|| linked().map(|(server, _)| *server))
            .or(match usable.as_slice() {
                [(only, _)] => Some(*only),
                _ => None,
            })
            .map(String::as_str)
    }

    /// Returns the server that has listed a template with this text, as completions name it.
    pub fn template_server(&self, text: &str, is_usable: impl Fn(&str) -> bool) -> Option<&str> {
        let mut usable = self.servers.iter().filter(|(server, _)| is_usable(server));
        let found = usable.find(|(_, uris)| uris.templates.contains_key(text));
        found.map(|(server, _)| server.as_str())
    }
}

impl ServerUris {
    fn learn_template(&mut self, text: &str) {
        if self.templates.contains_key(text) {
            return;
        }
        let bytes = self.template_bytes + text.len();
        if self.templates.len() >= MAX_TEMPLATES || bytes > MAX_TEMPLATE_BYTES {
            tracing::debug!(
                template = shortened(text),
                "too many templates; it is not remembered"
            );
            return;
        }
        let matcher = match UriTemplate::parse(text) {
            // Which values are safe is for the server to decide.
            Ok(template) => TemplateMatcher::Template(Box::new(template.allow_any_value())),
            Err(_) => {
                TemplateMatcher::Prefix(text.split('{').next().unwrap_or_default().to_owned())
            }
        };
        self.template_bytes = bytes;
        self.templates.insert(text.to_owned(), matcher);
    }

    /// Returns the precision of the best pattern that matches.
    fn pattern(&self, uri: &str) -> Option<usize> {
        let matching = self.patterns.iter().filter(|pattern| pattern.matches(uri));
        matching.map(NamePattern::precision).max()
    }

    /// Returns the length of the literal text of the best template that matches.
    fn template(&self, uri: &str, budget: &mut MatchBudget) -> Option<usize> {
        let matching = self
            .templates
            .iter()
            .filter(|(text, matcher)| budget.allows(text, uri) && matcher.matches(uri));
        matching.map(|(text, _)| literal_length(text)).max()
    }
}

impl UriSet {
    fn insert(&mut self, uri: &str) {
        if uri.len() > MAX_URI_LENGTH || self.uris.contains(uri) {
            return;
        }
        let uri: Arc<str> = uri.into();
        self.bytes += uri.len();
        self.uris.insert(uri.clone());
        self.order.push_back(uri);
        // A server can list without end; its oldest URIs are then found by pattern or template only.
        while self.order.len() > MAX_URIS || self.bytes > MAX_URI_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.bytes -= oldest.len();
            self.uris.remove(&oldest);
        }
    }
}

impl TemplateMatcher {
    fn matches(&self, uri: &str) -> bool {
        match self {
            Self::Template(template) => template.find(uri).is_some(),
            Self::Prefix(prefix) => !prefix.is_empty() && uri.starts_with(prefix),
        }
    }
}

/// The parts of a result of `tools/call` or `prompts/get` that contain links.
#[derive(serde::Deserialize)]
struct LinkingResult {
    #[serde(default)]
    content: Vec<LinkingBlock>,
    #[serde(default)]
    messages: Vec<LinkingMessage>,
}

#[derive(serde::Deserialize)]
struct LinkingMessage {
    content: LinkingBlock,
}

#[derive(serde::Deserialize)]
struct LinkingBlock {
    /// Of a `resource_link`.
    uri: Option<String>,
    /// Of a `resource`.
    resource: Option<EmbeddedResource>,
}

#[derive(serde::Deserialize)]
struct EmbeddedResource {
    uri: Option<String>,
}

/// Returns the first server of those with the largest value.
fn best<'a>(servers: impl Iterator<Item = (&'a String, Option<usize>)>) -> Option<&'a String> {
    let found = servers.filter_map(|(server, value)| Some((server, value?)));
    let first = found.reduce(|a, b| if b.1 > a.1 { b } else { a });
    first.map(|(server, _)| server)
}

fn literal_length(template: &str) -> usize {
    let parts = template.split('{').enumerate();
    let literal = |(at, part): (usize, &str)| match (at, part.split_once('}')) {
        (0, _) => part.len(),
        (_, Some((_, literal))) => literal.len(),
        (_, None) => 0,
    };
    parts.map(literal).sum()
}

const MAX_URIS: usize = 10_000;
const MAX_TEMPLATES: usize = 1000;
/// Of the URIs that one server has listed, and of those that its results link to.
const MAX_URI_BYTES: usize = 1024 * 1024;
/// Of all templates of one server. They are parsed, so they are larger than their text.
const MAX_TEMPLATE_BYTES: usize = 256 * 1024;
/// Longer URIs are not remembered: those with data in them would displace all others.
const MAX_URI_LENGTH: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn routes() -> UriRoutes {
        let mut routes = UriRoutes::new([
            ("a", vec![NamePattern::new("file:///*")]),
            ("b", vec![NamePattern::new("file:///b/*")]),
            ("c", Vec::new()),
        ]);
        let resources = r#"{"resources": [{"uri": "note:1"}, {"uri": "note:2", "uri": "x:"}, 7]}"#;
        let templates =
            r#"{"resourceTemplates": [{"uriTemplate": "note:{id}"}, {"uriTemplate": "odd:{a*}"}]}"#;
        let resources = Json::parse(resources).unwrap();
        routes.learn_page("b", ItemKind::Resource, &resources);
        routes.learn_page("c", ItemKind::Resource, &resources);
        routes.learn_page(
            "c",
            ItemKind::ResourceTemplate,
            &Json::parse(templates).unwrap(),
        );
        routes.learn_page("c", ItemKind::Tool, &Json::null());
        routes
    }

    #[test]
    fn the_work_for_templates_is_bounded() {
        let mut routes = UriRoutes::new([("a", Vec::new()), ("b", Vec::new())]);
        let templates: Vec<_> = (0..20)
            .map(|number| serde_json::json!({"uriTemplate": format!("x:{{v}}{number}{}", "a".repeat(200))}))
            .collect();
        let page = serde_json::json!({ "resourceTemplates": templates });
        routes.learn_page("a", ItemKind::ResourceTemplate, &page.into());
        let short = serde_json::json!({"resourceTemplates": [{"uriTemplate": "y:{v}"}]});
        routes.learn_page("b", ItemKind::ResourceTemplate, &short.into());
        let uri = format!("x:{}", "a".repeat(8_000));
        let mut budget = MatchBudget::for_list();

        assert_eq!(routes.route_within(&uri, |_| true, &mut budget), None);

        let used = MatchBudget::for_list().0 - budget.0;
        let share = MatchBudget::for_list().0 / 2;
        let one = 250 * uri.len();
        assert!((share - one..=share).contains(&used), "{used}");
        assert_eq!(routes.route("y:1", |_| true), Some("b"), "others are found");
    }

    #[test]
    fn a_long_uri_is_found_among_many_servers_and_after_templates_that_cost_too_much() {
        let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
        let mut routes = UriRoutes::new(names.iter().map(|name| (name.as_str(), Vec::new())));
        let found = format!("q:{}{{?sql}}", "p".repeat(40));
        let costly = format!("q:{{a}}{}", "b".repeat(60_000));
        for name in &names {
            let own = match name.as_str() {
                "s19" => vec![costly.as_str(), found.as_str()],
                _ => vec!["other:{a}"],
            };
            let own: Vec<_> = own
                .iter()
                .map(|it| serde_json::json!({"uriTemplate": it}))
                .collect();
            let page = serde_json::json!({ "resourceTemplates": own });
            routes.learn_page(name, ItemKind::ResourceTemplate, &page.into());
        }

        let uri = format!("q:{}?sql={}", "p".repeat(40), "x".repeat(8_000));

        assert_eq!(routes.route(&uri, |_| true), Some("s19"));
    }

    #[test]
    fn patterns_come_before_lists_and_lists_before_templates() {
        let routes = routes();
        let route = |uri| routes.route(uri, |_| true);

        assert_eq!(route("file:///x"), Some("a"));
        assert_eq!(route("file:///b/x"), Some("b"));
        assert_eq!(route("note:1"), Some("b"), "the first that lists it");
        assert_eq!(route("note:2"), Some("c"), "by its template");
        assert_eq!(
            route("odd:x"),
            Some("c"),
            "by the beginning of its template"
        );
        assert_eq!(route("http://x"), None);
        assert_eq!(routes.route("http://x", |server| server == "c"), Some("c"));
        assert_eq!(routes.route("note:1", |server| server != "b"), Some("c"));
        assert_eq!(routes.template_server("note:{id}", |_| true), Some("c"));
        assert_eq!(
            routes.template_server("note:{id}", |server| server != "c"),
            None
        );
    }

    #[test]
    fn a_resource_that_was_linked_to_is_found() {
        let mut routes = routes();

        routes.learn("c", "made:1");
        routes.learn("unknown", "made:2");
        let result = r#"{"content": [
            {"type": "text", "text": "x"}, {"type": "resource_link", "uri": "made:3", "name": "x"},
            {"type": "resource", "resource": {"uri": "made:4", "text": ""}}
        ]}"#;
        routes.learn_links("c", &Json::from_static(result));
        let prompt = r#"{"messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "made:5"}}}]}"#;
        routes.learn_links("c", &Json::from_static(prompt));
        routes.learn_links(
            "c",
            &Json::from_static(r#"{"content": "uri", "uri": 1, "a": {"uri": 1}}"#),
        );

        assert_eq!(routes.route("made:1", |_| true), Some("c"));
        routes.learn("a", "note:1");
        assert_eq!(
            routes.route("note:1", |_| true),
            Some("b"),
            "a list counts more than a link"
        );
        assert_eq!(routes.route("made:2", |_| true), None);
        for uri in ["made:3", "made:4", "made:5"] {
            assert_eq!(routes.route(uri, |_| true), Some("c"), "{uri}");
        }
    }

    #[test]
    fn other_servers_keep_what_was_learned_only_if_told_to() {
        let mut routes = routes();

        let servers = [("b", vec![NamePattern::new("new:*")]), ("c", Vec::new())];
        routes.set_servers(servers, |server| server == "c");

        assert_eq!(
            routes.route("note:1", |_| true),
            Some("c"),
            "`b` was forgotten"
        );
        assert_eq!(routes.route("new:1", |_| true), Some("b"));
        assert_eq!(
            routes.route("file:///b/x", |_| true),
            None,
            "the old patterns are gone"
        );
    }

    #[test]
    fn only_the_latest_resources_are_remembered() {
        let mut routes = routes();

        for number in 0..=MAX_URIS {
            routes.learn("c", &format!("made:{number}"));
        }

        assert_eq!(routes.route("made:0", |_| true), None);
        assert_eq!(
            routes.route(&format!("made:{MAX_URIS}"), |_| true),
            Some("c")
        );
        assert_eq!(routes.servers["c"].linked.uris.len(), MAX_URIS);
    }

    #[test]
    fn the_bytes_of_what_is_remembered_are_bounded() {
        let mut routes = routes();

        for number in 0..2 * MAX_URI_BYTES / MAX_URI_LENGTH {
            let long = "x".repeat(MAX_URI_LENGTH - 10);
            routes.learn("c", &format!("{number:09}:{long}"));
        }
        routes.learn("c", &"y".repeat(MAX_URI_LENGTH + 1));
        for number in 0..MAX_TEMPLATES {
            let long = "x".repeat(MAX_URI_LENGTH - 20);
            let template = json!({"uriTemplate": format!("{number:09}:{long}{{a}}")});
            let page = Json::from(json!({"resourceTemplates": [template]}));
            routes.learn_page("c", ItemKind::ResourceTemplate, &page);
        }

        let learned = &routes.servers["c"];
        let linked: usize = learned.linked.uris.iter().map(|uri| uri.len()).sum();
        assert!(linked <= MAX_URI_BYTES, "{linked}");
        assert!(linked > MAX_URI_BYTES / 2, "{linked}");
        assert_eq!(
            routes.route(&"y".repeat(MAX_URI_LENGTH + 1), |_| true),
            None
        );
        let templates: usize = learned.templates.keys().map(String::len).sum();
        assert!(templates <= MAX_TEMPLATE_BYTES, "{templates}");
    }
}
