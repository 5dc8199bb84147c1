//! Mounting a server in another; see [`Server::mount`].

use super::completion::CompletionTarget;
use super::definition::{ListKind, ServerDefinition};
use super::registry::{RegistryEntry, Snapshot};
use crate::exchange::Extensions;

/// Adds the entries of `inner` to the registries of `outer`, and returns the errors.
pub(super) fn mount_entries(
    outer: &ServerDefinition,
    prefix: &str,
    inner: &ServerDefinition,
) -> Vec<String> {
    let mut added = Vec::new();
    for (name, tool) in entries_with_state(&inner.tools.snapshot(), &inner.state) {
        added.push(outer.add_tool(prefixed(prefix, &name), tool));
    }
    for (name, prompt) in entries_with_state(&inner.prompts.snapshot(), &inner.state) {
        added.push(outer.add_prompt(prefixed(prefix, &name), prompt));
    }
    for (uri, resource) in entries_with_state(&inner.resources.snapshot(), &inner.state) {
        added.push(outer.add_resource(uri, resource));
    }
    for (text, template) in entries_with_state(&inner.templates.snapshot(), &inner.state) {
        added.push(outer.add_template(text, template));
    }
    for completer in inner.completers.snapshot().entries().values() {
        let mut completer = with_state(completer, &inner.state);
        if let CompletionTarget::Prompt { name, .. } = &mut completer.item.target {
            *name = prefixed(prefix, name);
        }
        added.push(outer.add_completer(completer));
    }
    // Lists may be advertised while they are empty.
    for (list, is_advertised) in [
        (ListKind::Tools, inner.has_tools()),
        (ListKind::Prompts, inner.has_prompts()),
        (ListKind::Resources, inner.has_resources()),
    ] {
        if is_advertised {
            outer.advertise(list);
        }
    }
    added.into_iter().filter_map(Result::err).collect()
}

/// Adds the subscriptions and callbacks of `inner`, and an error for each of its extensions, to the settings of `outer`.
pub(super) fn mount_settings(outer: &mut ServerDefinition, inner: &ServerDefinition) {
    // They may refer to their server, and their methods have no prefix.
    outer
        .errors
        .extend(inner.extensions.iter().map(|extension| {
        format!(
            "the mounted server `{}` has the extension `{}`; add it to the outer server instead",
            inner.identity.name, extension.id
        )
    }));
    outer.resource_subscriptions |= inner.resource_subscriptions;
    let lists = inner.resource_lists.iter().cloned().map(|mut list| {
        list.state = joined(&list.state, &inner.state);
        list
    });
    outer.resource_lists.extend(lists);
    for (outer, hooks) in [
        (&mut outer.on_subscribe, &inner.on_subscribe),
        (&mut outer.on_unsubscribe, &inner.on_unsubscribe),
    ] {
        outer.extend(hooks.iter().cloned().map(|mut hook| {
            hook.state = joined(&hook.state, &inner.state);
            hook
        }));
    }
    let callbacks = inner.on_roots_changed.iter().cloned();
    outer.on_roots_changed.extend(callbacks);
}

fn entries_with_state<'a, T: Clone + 'a>(
    snapshot: &'a Snapshot<T>,
    state: &'a Extensions,
) -> impl Iterator<Item = (String, RegistryEntry<T>)> + 'a {
    let entries = snapshot.entries().iter();
    entries.map(|(name, entry)| (name.clone(), with_state(entry, state)))
}

fn with_state<T: Clone>(entry: &RegistryEntry<T>, state: &Extensions) -> RegistryEntry<T> {
    let state = joined(&entry.state, state);
    let item = entry.item.clone();
    RegistryEntry { item, state }
}

/// The state of the entry takes precedence: it comes from a server that was mounted in the inner one.
fn joined(of_entry: &Extensions, of_inner: &Extensions) -> Extensions {
    let mut state = of_inner.clone();
    state.extend(of_entry);
    state
}

/// The separator is an underscore, because many models accept no other one in tool names.
fn prefixed(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}_{name}"),
    }
}
