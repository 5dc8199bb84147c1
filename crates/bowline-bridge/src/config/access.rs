//! [`AccessRules`]: which tools, prompts and resources of a server which principals see and use.

use bowline::exchange::Principal;
use serde_json::Value;

use super::error::ConfigError;
use super::pattern::NamePattern;
use super::reader::{MemberReader, expected, patterns};

/// What a list consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(
    clippy::exhaustive_enums,
    reason = "these are the lists of the specification"
)]
pub enum ItemKind {
    /// Tools, by name.
    Tool,
    /// Prompts, by name.
    Prompt,
    /// Resources, by URI.
    Resource,
    /// Resource templates, by the text of the template.
    ResourceTemplate,
}

/// Which tools, prompts and resources of a server a principal sees and uses.
///
/// Names are those of the server, without our prefix. A resource is named by its URI, a template by its text.
///
/// A name is allowed if
///
/// 1. no `deny` list of the server matches it, and
/// 2. its `allow` list matches it, or is missing, and
/// 3. the server has no `rules`, or the first rule that applies to the principal allows the name, by its own lists in
///    the same way. If no rule applies to the principal, it sees nothing of the server.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Principal;
/// use bowline_bridge::BridgeConfig;
/// use bowline_bridge::config::ItemKind::Tool;
///
/// let config = BridgeConfig::from_json(r#"{"mcpServers": {"files": {"command": "files-server", "bridge": {
///     "tools": {"deny": ["delete_*"]},
///     "rules": [
///         {"scopes": ["files:write"]},
///         {"principals": ["*"], "tools": {"allow": ["read_*"]}}
///     ]
/// }}}}"#)?;
/// let access = &config.get("files").unwrap().settings().access;
/// let reader = Principal::named("ada");
/// let writer = Principal::named("ada").with_scopes(["files:write"]);
/// assert!(access.allows(Tool, "read_file", &reader) && !access.allows(Tool, "write_file", &reader));
/// assert!(access.allows(Tool, "write_file", &writer) && !access.allows(Tool, "delete_file", &writer));
/// assert!(!access.allows(Tool, "read_file", &Principal::anonymous()));
/// # Ok::<(), bowline_bridge::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    lists: AccessLists,
    rules: Option<Vec<PrincipalRule>>,
}

/// The lists of a server, or of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccessLists {
    tools: AccessList,
    prompts: AccessList,
    resources: AccessList,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccessList {
    /// `None` allows all that is not denied.
    allow: Option<Vec<NamePattern>>,
    deny: Vec<NamePattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PrincipalRule {
    principals: Option<Vec<NamePattern>>,
    subjects: Option<Vec<NamePattern>>,
    /// All of them are required.
    scopes: Vec<String>,
    is_for_anonymous: bool,
    lists: AccessLists,
}

impl AccessRules {
    /// Returns whether a principal may see and use what has this name.
    #[must_use]
    pub fn allows(&self, kind: ItemKind, name: &str, principal: &Principal) -> bool {
        if !self.lists.allow(kind, name) {
            return false;
        }
        let Some(rules) = &self.rules else {
            return true;
        };
        let rule = rules.iter().find(|rule| rule.applies_to(principal));
        rule.is_some_and(|rule| rule.lists.allow(kind, name))
    }

    /// Returns whether a principal may use the server at all.
    #[must_use]
    pub fn admits(&self, principal: &Principal) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        rules.iter().any(|rule| rule.applies_to(principal))
    }

    /// Returns whether the answer depends on the principal. If so, filtered lists must not be cached for others.
    #[must_use]
    pub fn depend_on_principal(&self) -> bool {
        self.rules.is_some()
    }

    pub(super) fn read(reader: &mut MemberReader<'_>) -> Result<Self, ConfigError> {
        let lists = AccessLists::read(reader)?;
        let path = reader.path_of("rules");
        let rules = reader.read("rules", |value| {
            let Value::Array(rules) = value else {
                return Err(expected("an array of rules", value));
            };
            let rules = rules.iter().enumerate();
            let read = |(at, rule)| PrincipalRule::read(rule, format!("{path}[{at}]"));
            rules.map(read).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Self { lists, rules })
    }
}

impl AccessLists {
    fn allow(&self, kind: ItemKind, name: &str) -> bool {
        let list = match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource | ItemKind::ResourceTemplate => &self.resources,
        };
        list.allows(name)
    }

    fn read(reader: &mut MemberReader<'_>) -> Result<Self, ConfigError> {
        let mut list = |member: &'static str| {
            let path = reader.path_of(member);
            let list = reader.read(member, |value| AccessList::read(value, path));
            Ok(list?.unwrap_or_default())
        };
        Ok(Self {
            tools: list("tools")?,
            prompts: list("prompts")?,
            resources: list("resources")?,
        })
    }
}

impl AccessList {
    fn allows(&self, name: &str) -> bool {
        let matches = |patterns: &[NamePattern]| patterns.iter().any(|it| it.matches(name));
        !matches(&self.deny) && self.allow.as_deref().is_none_or(matches)
    }

    /// Reads `{"allow": […], "deny": […]}`, or an array, which is the list of what is allowed.
    fn read(value: &Value, path: String) -> Result<Self, ConfigError> {
        if value.is_array() {
            return Ok(Self {
                allow: Some(patterns(value)?),
                deny: Vec::new(),
            });
        }
        let mut reader = MemberReader::new(value, path)?;
        let allow = reader.patterns("allow")?;
        let deny = reader.patterns("deny")?.unwrap_or_default();
        reader.finish()?;
        Ok(Self { allow, deny })
    }
}

impl PrincipalRule {
    fn applies_to(&self, principal: &Principal) -> bool {
        let matches = |patterns: &[NamePattern], text: Option<&str>| {
            text.is_some_and(|text| patterns.iter().any(|pattern| pattern.matches(text)))
        };
        let Some(name) = principal.name() else {
            return self.is_for_anonymous;
        };
        let (names, subjects) = (self.principals.as_deref(), self.subjects.as_deref());
        // A rule for anonymous callers alone must not apply to those that have a name.
        let is_for_named = names.is_some() || subjects.is_some() || !self.scopes.is_empty();
        is_for_named
            && names.is_none_or(|patterns| matches(patterns, Some(name)))
            && subjects.is_none_or(|patterns| matches(patterns, principal.subject()))
            && self.scopes.iter().all(|scope| principal.has_scope(scope))
    }

    fn read(value: &Value, path: String) -> Result<Self, ConfigError> {
        let mut reader = MemberReader::new(value, path.clone())?;
        let rule = Self {
            principals: reader.patterns("principals")?,
            subjects: reader.patterns("subjects")?,
            scopes: reader.texts("scopes")?,
            is_for_anonymous: reader.flag("anonymous")?.unwrap_or(false),
            lists: AccessLists::read(&mut reader)?,
        };
        reader.finish()?;
        let is_for_named =
            rule.principals.is_some() || rule.subjects.is_some() || !rule.scopes.is_empty();
        if !is_for_named && !rule.is_for_anonymous {
            let problem = "applies to no principal; expected `principals`, `subjects`, `scopes` or \
                           `\"anonymous\": true`";
            return Err(ConfigError::new(problem).in_member(path));
        }
        Ok(rule)
    }
}
