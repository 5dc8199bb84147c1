//! Adding and removing while the server runs; those who subscribed are told.

#![allow(
    clippy::must_use_candidate,
    reason = "whether something was there matters to few who remove it"
)]

use crate::Result;

use super::{Prompt, Resource, ResourceTemplate, Server, Tool};

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
pub struct Tools<'a>(pub(super) &'a Server);

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
pub struct Prompts<'a>(pub(super) &'a Server);

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
pub struct Resources<'a>(pub(super) &'a Server);

impl Tools<'_> {
    /// Offers a tool from now on, in the place of an earlier one with the same name.
    ///
    /// # Errors
    ///
    /// As [`Tool::check`]; nothing has changed then.
    pub fn add(&self, tool: impl Into<Tool>) -> Result<()> {
        let tool = tool.into().registered()?;
        let tools = &self.0.offer.tools;
        let old = tools.change(|tools| tools.add(tool.name().to_owned(), tool));
        drop(old);
        self.0.changed().tools();
        Ok(())
    }

    /// Offers a tool no more. Calls that have begun go on. Whether it was there.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.0.offer.tools.change(|tools| tools.remove(name));
        if removed.is_some() {
            self.0.changed().tools();
        }
        removed.is_some()
    }

    /// The names of all tools, in the order of the list.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.offer.tools.now().entries().keys().cloned().collect()
    }
}

impl Prompts<'_> {
    /// Offers a prompt from now on, in the place of an earlier one with the same name.
    pub fn add(&self, prompt: impl Into<Prompt>) {
        let prompt = prompt.into();
        let prompts = &self.0.offer.prompts;
        let old = prompts.change(|prompts| prompts.add(prompt.name().to_owned(), prompt));
        drop(old);
        self.0.changed().prompts();
    }

    /// Offers a prompt no more. Whether it was there.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.0.offer.prompts.change(|prompts| prompts.remove(name));
        if removed.is_some() {
            self.0.changed().prompts();
        }
        removed.is_some()
    }

    /// The names of all prompts, in the order of the list.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0
            .offer
            .prompts
            .now()
            .entries()
            .keys()
            .cloned()
            .collect()
    }
}

impl Resources<'_> {
    /// Offers a resource from now on, in the place of an earlier one at the same URI.
    pub fn add(&self, resource: impl Into<Resource>) {
        let resource = resource.into();
        let resources = &self.0.offer.resources;
        let old = resources.change(|all| all.add(resource.uri().to_owned(), resource));
        drop(old);
        self.0.changed().resources();
    }

    /// Offers a resource no more. Whether it was there.
    pub fn remove(&self, uri: &str) -> bool {
        let removed = self.0.offer.resources.change(|all| all.remove(uri));
        if removed.is_some() {
            self.0.changed().resources();
        }
        removed.is_some()
    }

    /// Offers a template from now on, in the place of an earlier one with the same text.
    pub fn add_template(&self, template: impl Into<ResourceTemplate>) {
        let template = template.into();
        let text = template.uri_template().as_str().to_owned();
        let old = self.0.offer.templates.change(|all| all.add(text, template));
        drop(old);
        self.0.changed().resources();
    }

    /// Offers a template no more. Whether it was there.
    pub fn remove_template(&self, template: &str) -> bool {
        let removed = self.0.offer.templates.change(|all| all.remove(template));
        if removed.is_some() {
            self.0.changed().resources();
        }
        removed.is_some()
    }

    /// The URIs of all resources, in the order of the list.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let resources = self.0.offer.resources.now();
        resources.entries().keys().cloned().collect()
    }
}
