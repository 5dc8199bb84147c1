//! One server within another.

use super::Server;
use super::completion::Target;
use super::offer::Offer;
use super::registry::{Offered, Snapshot};
use crate::exchange::Extensions;

/// Adds everything that `inner` offers to `outer`.
pub(super) fn mount(outer: &mut Offer, prefix: &str, inner: &Server) {
    let inner = &*inner.offer;
    for (name, tool) in all(&inner.tools.now(), &inner.state) {
        outer.add_tool(prefixed(prefix, &name), tool);
    }
    for (name, prompt) in all(&inner.prompts.now(), &inner.state) {
        outer.add_prompt(prefixed(prefix, &name), prompt);
    }
    for (uri, resource) in all(&inner.resources.now(), &inner.state) {
        outer.add_resource(uri, resource);
    }
    for (text, template) in all(&inner.templates.now(), &inner.state) {
        outer.add_template(text, template);
    }
    for completer in inner.completers.values() {
        let mut completer = with_state(completer, &inner.state);
        if let Target::Prompt { name, .. } = &mut completer.item.target {
            *name = prefixed(prefix, name);
        }
        outer.add_completer(completer);
    }
    outer.flaws.extend(inner.flaws.iter().cloned());
    outer.resource_updates |= inner.resource_updates;
    let listeners = inner.on_roots_changed.iter().cloned();
    outer.on_roots_changed.extend(listeners);
}

fn all<'a, T: Clone + 'a>(
    snapshot: &'a Snapshot<T>,
    state: &'a Extensions,
) -> impl Iterator<Item = (String, Offered<T>)> + 'a {
    let entries = snapshot.entries().iter();
    entries.map(|(name, offered)| (name.clone(), with_state(offered, state)))
}

/// What `offered` shares wins: it comes from further inside.
fn with_state<T: Clone>(offered: &Offered<T>, state: &Extensions) -> Offered<T> {
    let mut state = state.clone();
    state.extend(&offered.state);
    let item = offered.item.clone();
    Offered { item, state }
}

/// An underscore, because many models take no other separator in the name of a tool.
fn prefixed(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}_{name}"),
    }
}
