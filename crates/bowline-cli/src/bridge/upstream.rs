//! The server behind the bridge, from the options.

use std::path::Path;
use std::sync::Arc;

use bowline::http::RedactedUrl;
use bowline_bridge::Target;

use crate::child_stderr::StderrWriter;
use crate::target::{CommandTarget, UrlTarget};

/// Returns a target that starts the command. Its stderr is passed on.
pub(crate) fn command_target(plan: CommandTarget, stderr: StderrWriter) -> Target {
    let name = Path::new(&plan.program).file_name();
    let name = name.unwrap_or(&plan.program).to_string_lossy().into_owned();
    Target::command(name, move || {
        let stderr = stderr.clone();
        plan.command().on_stderr(move |line| stderr.write(line))
    })
}

/// Returns a target that connects to the URL, and signs in if that is needed.
pub(crate) fn url_target(plan: &UrlTarget) -> Target {
    let plan = plan.clone();
    let name = RedactedUrl::new(&plan.url).to_string();
    let oauth = plan.oauth("Bowline bridge").map(Arc::new);
    let target = Target::new(name, move |_| {
        Ok(match &oauth {
            Some(oauth) => plan.client().authorizer(oauth.clone()),
            None => plan.client(),
        })
    });
    target.stateless()
}
