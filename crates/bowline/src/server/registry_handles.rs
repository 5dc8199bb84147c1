//! Handles that add and remove tools, prompts and resources while the server runs, and notify subscribers.

#![allow(
    clippy::must_use_candidate,
    reason = "most callers of `remove` ignore whether the entry existed"
)]

use crate::Result;

use super::registry::Snapshot;
use super::{IntoDefinition, Prompt, Resource, ResourceTemplate, Server, Tool};

/// The tools of a running server: `server.tools().add(tool)`.
///
/// # Examples
///
/// ```
/// use bowline::{CallToolResult, Server, Tool};
/// use serde_json::json;
///
/// let server = Server::new("workshop", "1.0.0");
/// let saw = Tool::raw("saw", json!({"type": "object"}), async |_, _| {
///     Ok(CallToolResult::text("sawn"))
/// });
/// server.tools().add(saw)?;
/// assert!(server.tools().remove("saw"));
/// assert!(server.tools().names().is_empty());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct ToolsHandle<'a>(pub(super) &'a Server);

/// The prompts of a running server: `server.prompts().add(prompt)`.
///
/// # Examples
///
/// ```
/// use bowline::{Prompt, Server};
///
/// let server = Server::new("writer", "1.0.0");
/// server.prompts().add(Prompt::raw("haiku", async |_, _| Ok("Write a haiku.")));
/// assert_eq!(server.prompts().names(), ["haiku"]);
/// ```
#[derive(Debug)]
pub struct PromptsHandle<'a>(pub(super) &'a Server);

/// The resources and templates of a running server: `server.resources().add(resource)`.
///
/// # Examples
///
/// ```
/// use bowline::{Resource, Server};
///
/// let server = Server::new("library", "1.0.0");
/// server.resources().add(Resource::text("docs://readme", "readme", "Read me."));
/// assert_eq!(server.resources().uris(), ["docs://readme"]);
/// ```
#[derive(Debug)]
pub struct ResourcesHandle<'a>(pub(super) &'a Server);

impl ToolsHandle<'_> {
    /// Adds a tool, or replaces the one with the same name, and notifies subscribers.
    ///
    /// # Errors
    ///
    /// As [`Tool::check`]; the tools are unchanged then.
    pub fn add<M>(&self, tool: impl IntoDefinition<Tool, M>) -> Result<()> {
        let tool = tool.into_definition().registered()?;
        let tools = &self.0.definition().tools;
        let old = tools.change(|tools| tools.add(tool.name().to_owned(), tool));
        drop(old);
        self.0.changed().tools();
        Ok(())
    }

    /// Removes a tool and notifies subscribers. Running calls continue. Returns whether the tool existed.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.0.definition().tools.change(|tools| tools.remove(name));
        if removed.is_some() {
            self.0.changed().tools();
        }
        removed.is_some()
    }

    /// Returns the names of all tools, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0
            .definition()
            .tools
            .snapshot()
            .entries()
            .keys()
            .cloned()
            .collect()
    }
}

impl PromptsHandle<'_> {
    /// Adds a prompt, or replaces the one with the same name, and notifies subscribers. Completers for arguments that
    /// the new one does not have are removed.
    pub fn add<M>(&self, prompt: impl IntoDefinition<Prompt, M>) {
        let prompt = prompt.into_definition();
        let (name, definition) = (prompt.name().to_owned(), self.0.definition());
        let add = |prompts: &mut Snapshot<_>| prompts.add(name.clone(), prompt);
        if definition.prompts.change(add).is_some() {
            definition.remove_orphaned_completers(|target| target.is_of_prompt(&name));
        }
        self.0.changed().prompts();
    }

    /// Removes a prompt with its completers, and notifies subscribers. Returns whether the prompt existed.
    pub fn remove(&self, name: &str) -> bool {
        let definition = self.0.definition();
        let removed = definition.prompts.change(|prompts| prompts.remove(name));
        if removed.is_some() {
            definition.remove_orphaned_completers(|target| target.is_of_prompt(name));
            self.0.changed().prompts();
        }
        removed.is_some()
    }

    /// Returns the names of all prompts, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0
            .definition()
            .prompts
            .snapshot()
            .entries()
            .keys()
            .cloned()
            .collect()
    }
}

impl ResourcesHandle<'_> {
    /// Adds a resource, or replaces the one with the same URI, and notifies subscribers.
    pub fn add<M>(&self, resource: impl IntoDefinition<Resource, M>) {
        let resource = resource.into_definition();
        let resources = &self.0.definition().resources;
        let old = resources.change(|all| all.add(resource.uri().to_owned(), resource));
        drop(old);
        self.0.changed().resources();
    }

    /// Removes a resource and notifies subscribers. Returns whether the resource existed.
    pub fn remove(&self, uri: &str) -> bool {
        let removed = self.0.definition().resources.change(|all| all.remove(uri));
        if removed.is_some() {
            self.0.changed().resources();
        }
        removed.is_some()
    }

    /// Adds a resource template, or replaces the one with the same text, and notifies subscribers.
    pub fn add_template(&self, template: impl Into<ResourceTemplate>) {
        let template = template.into();
        let text = template.uri_template().as_str().to_owned();
        let old = self
            .0
            .definition()
            .templates
            .change(|all| all.add(text, template));
        drop(old);
        self.0.changed().resources();
    }

    /// Removes a resource template with its completers, and notifies subscribers. Returns whether the template existed.
    pub fn remove_template(&self, template: &str) -> bool {
        let definition = self.0.definition();
        let removed = definition.templates.change(|all| all.remove(template));
        if removed.is_some() {
            definition.remove_orphaned_completers(|target| target.is_of_template(template));
            self.0.changed().resources();
        }
        removed.is_some()
    }

    /// Returns the URIs of all resources, sorted.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let resources = self.0.definition().resources.snapshot();
        resources.entries().keys().cloned().collect()
    }
}
