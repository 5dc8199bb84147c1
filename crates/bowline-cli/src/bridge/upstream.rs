//! The server behind the bridge, from the options.

use std::path::Path;
use std::sync::Arc;

use bowline::Client;
use bowline::wire::Command;
use bowline_bridge::Target;

use super::child_stderr::StderrWriter;
use super::options::{CommandPlan, UrlPlan};
use super::sign_in::SignInWhenRefused;

/// Returns a target that starts the command. Its stderr is passed on.
pub(crate) fn command_target(plan: CommandPlan, stderr: StderrWriter) -> Target {
    let name = Path::new(&plan.program).file_name();
    let name = name.unwrap_or(&plan.program).to_string_lossy().into_owned();
    Target::command(name, move || {
        let mut command = Command::new(&plan.program).args(&plan.args);
        if plan.inherit_env {
            command = command.inherit_env();
        }
        for variable in &plan.env {
            command = command.env(&variable.name, &variable.value);
        }
        let stderr = stderr.clone();
        command.on_stderr(move |line| stderr.write(line))
    })
}

/// Returns a target that connects to the URL, and signs in if that is needed.
pub(crate) fn url_target(plan: &UrlPlan) -> Target {
    let (url, headers) = (plan.url.clone(), plan.headers.clone());
    let sign_in = SignInWhenRefused::new(plan).map(Arc::new);
    let target = Target::new(plan.url.as_str(), move |_| {
        let mut builder = Client::connect(&url);
        for header in &headers {
            builder = builder.header(&header.name, &header.value);
        }
        Ok(match &sign_in {
            Some(sign_in) => builder.authorizer(sign_in.clone()),
            None => builder,
        })
    });
    target.stateless()
}
