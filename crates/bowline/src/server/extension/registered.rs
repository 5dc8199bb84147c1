//! [`RegisteredExtension`], an extension of a server with what it declared when it was added, and its checks.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_core::era::{Caller, Dialect, Request};
use bowline_types::{CapabilitySettings, RpcError, check_extension_id};

use super::{ExtensionMethod, ServerExtension};
use crate::server::definition::ServerDefinition;
use crate::server::tool::check_declared;

/// An extension, with what it declared when it was added.
pub(in crate::server) struct RegisteredExtension {
    pub(in crate::server) extension: Arc<dyn ServerExtension>,
    pub(in crate::server) id: String,
    /// `None` if they are not an object.
    pub(in crate::server) settings: Option<CapabilitySettings>,
    methods: Vec<ExtensionMethod>,
    pub(super) filter_members: Vec<String>,
}

impl RegisteredExtension {
    pub(super) fn new(extension: Arc<dyn ServerExtension>) -> Self {
        let members = extension.filter_members().iter();
        let settings = extension.settings();
        Self {
            id: extension.id().to_owned(),
            settings: settings
                .is_object()
                .then(|| settings.decode().ok())
                .flatten(),
            methods: extension.methods(),
            filter_members: members.map(|member| (*member).to_owned()).collect(),
            extension,
        }
    }

    pub(in crate::server) fn method(&self, name: &str) -> Option<&ExtensionMethod> {
        self.methods.iter().find(|method| method.name == name)
    }

    pub(in crate::server) fn is_available_in(&self, dialect: &Dialect) -> bool {
        self.extension.is_available_in(dialect)
    }

    /// Returns whether the extension has this method for callers of this version.
    pub(in crate::server) fn has_method_in(&self, method: &str, dialect: &Dialect) -> bool {
        let method = self.method(method);
        method.is_some_and(|method| method.exists_in(dialect)) && self.is_available_in(dialect)
    }

    /// Returns whether the caller can use the extension and has declared it.
    pub(in crate::server) fn is_active_for(&self, caller: &Caller) -> bool {
        let declared = caller.capabilities.extensions.as_ref();
        declared.is_some_and(|declared| declared.contains_key(&self.id))
            && self.is_available_in(caller.dialect)
    }

    /// Returns the error of a call of a tool that requires the extension by a legacy caller that did not declare it.
    pub(in crate::server) fn undeclared_error(
        &self,
        caller: &Caller,
        required: &[String],
    ) -> Option<RpcError> {
        let is_refused = !caller.dialect.is_modern()
            && required.contains(&self.id)
            && self.is_available_in(caller.dialect)
            && self.check_declared(caller).is_err();
        is_refused.then(|| self.extension.undeclared_error(caller.dialect))?
    }

    /// Checks that the caller has declared the extension.
    pub(in crate::server) fn check_declared(&self, caller: &Caller) -> Result<(), RpcError> {
        check_declared(&self.id, &caller.capabilities)
    }

    /// Returns the errors of this extension alone.
    fn errors(&self) -> Vec<String> {
        let id = &self.id;
        let mut errors = Vec::new();
        if let Err(error) = check_extension_id(id) {
            errors.push(format!("extension `{id}`: {error}"));
        }
        if self.settings.is_none() {
            errors.push(format!(
                "extension `{id}`: the settings must be a JSON object"
            ));
        }
        let of_protocol = self.methods.iter().filter(|method| is_of_protocol(method));
        errors.extend(of_protocol.map(|method| {
            format!(
                "extension `{id}`: the protocol defines the method `{}`",
                method.name
            )
        }));
        let of_protocol = self.filter_members.iter();
        let of_protocol = of_protocol.filter(|member| FILTER_MEMBERS.contains(&member.as_str()));
        errors.extend(of_protocol.map(|member| {
            format!("extension `{id}`: the protocol defines the filter member `{member}`")
        }));
        errors
    }
}

impl ServerDefinition {
    /// Returns the extension that defines a method.
    pub(in crate::server) fn extension_of_method(
        &self,
        method: &str,
    ) -> Option<&Arc<RegisteredExtension>> {
        let mut extensions = self.extensions.iter();
        extensions.find(|extension| extension.method(method).is_some())
    }

    /// Makes the extensions that a legacy request declares in its own way those in the capabilities of its caller, where
    /// those of a modern caller are: all further checks look there. What a legacy caller declared there when it connected
    /// does not count: its version has no extensions, and a bridge passes on what the client behind it declared.
    pub(in crate::server) fn declare_legacy_extensions(&self, request: &mut Request) {
        if request.caller.dialect.is_modern() {
            return;
        }
        for registered in &self.extensions {
            if !registered.is_available_in(request.caller.dialect) {
                continue;
            }
            let is_declared = registered.extension.is_declared_by_legacy(request);
            if is_declared == registered.check_declared(&request.caller).is_ok() {
                continue;
            }
            let caller = Arc::make_mut(&mut request.caller);
            let declared = caller.capabilities.extensions.get_or_insert_default();
            if is_declared {
                declared.insert(registered.id.clone(), CapabilitySettings::default());
            } else {
                declared.remove(&registered.id);
            }
        }
    }

    /// Returns the errors of the extensions, and of the tools that have settings for an extension.
    pub(in crate::server) fn extension_errors(&self) -> Vec<String> {
        let mut errors: Vec<_> = self.extensions.iter().flat_map(|it| it.errors()).collect();
        let ids = self.extensions.iter().map(|it| &*it.id);
        errors.extend(duplicates(ids).map(|id| format!("duplicate extension `{id}`")));
        let methods = self.extensions.iter().flat_map(|it| &it.methods);
        let methods = methods.map(ExtensionMethod::name);
        errors.extend(duplicates(methods).map(|it| format!("duplicate extension method `{it}`")));
        let members = self.extensions.iter().flat_map(|it| &it.filter_members);
        let members = members.map(String::as_str);
        errors.extend(duplicates(members).map(|it| format!("duplicate filter member `{it}`")));
        for (name, entry) in self.tools.snapshot().entries() {
            for id in entry.item.settings_extensions() {
                if !self.extensions.iter().any(|extension| extension.id == *id) {
                    errors.push(format!(
                        "tool `{name}` has settings for the extension `{id}`; add it with `Server::extension`"
                    ));
                }
            }
        }
        errors
    }
}

/// Returns the values that occur again, in the order of their second occurrence.
fn duplicates<'a>(values: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut known = BTreeSet::new();
    values.filter(move |value| !known.insert(*value))
}

/// Returns whether a version defines the method in its core.
fn is_of_protocol(method: &ExtensionMethod) -> bool {
    let name = &*method.name;
    if LEFT_TO_EXTENSIONS.contains(&name) {
        return false;
    }
    let is_of_core = |dialect: &&Dialect| dialect.methods.client_requests.contains(&name);
    // A later version may move what was core to an extension, as with tasks.
    let is_of_extension = |dialect: &&Dialect| dialect.methods.extension_requests.contains(&name);
    Dialect::ALL.iter().any(is_of_core) && !Dialect::ALL.iter().any(is_of_extension)
}

/// Methods of the core of a legacy version that a server has only with the extension that replaced them.
const LEFT_TO_EXTENSIONS: &[&str] = &["tasks/list", "tasks/result"];

/// The filter members of the protocol, which an extension never gets.
const FILTER_MEMBERS: &[&str] = &[
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
    "resourceSubscriptions",
];
