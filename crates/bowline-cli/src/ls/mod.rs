//! `bowline ls`: lists the tools, resources and prompts of a server.

mod render;

use bowline::types::{
    DiscoverResult, ErrorCode, Implementation, Prompt, Resource, ResourceTemplate,
    ServerCapabilities, Tool,
};
use bowline::{Client, Error};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::nearest::nearest;
use crate::output::{Output, OutputOptions};
use crate::signature::Signature;
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, TargetArgs, server_facts, with_client};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct LsOptions {
    #[command(flatten)]
    target: TargetArgs,
    /// Show only the tool, resource or prompt with this name, in full (repeatable).
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Show the JSON schemas of tools too.
    #[arg(long)]
    schema: bool,
    /// Show only names and signatures.
    #[arg(long, conflicts_with = "schema")]
    short: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// How much of each item to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Short,
    Normal,
    Full,
    Schema,
}

/// The lists of a server. `None` is a list that the server does not have.
#[derive(Debug, Default)]
struct Listing {
    tools: Option<Vec<Tool>>,
    resources: Option<Vec<Resource>>,
    templates: Option<Vec<ResourceTemplate>>,
    prompts: Option<Vec<Prompt>>,
}

/// Lists what a server has.
///
/// # Errors
///
/// If the server cannot be reached, or does not answer.
///
/// # Cancel safety
///
/// Dropping it cancels the requests and closes the connection.
pub(crate) async fn run(options: LsOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let target = options.target.resolve(&options.connect)?;
    with_client(
        &target,
        &options.connect,
        |builder| builder,
        async |client| {
            let server = server_facts(client).await;
            let mut listing = Listing::fetch(client, server.as_ref()).await?;
            if !options.name.is_empty() {
                listing.retain(&options.name)?;
            }
            let about = About {
                server,
                version: client.dialect().version,
            };
            print(&about, &listing, &options, output)?;
            Ok(Exit::Success)
        },
    )
    .await
}

/// What a server says about itself.
struct About {
    server: Option<DiscoverResult>,
    version: &'static str,
}

impl About {
    fn info(&self) -> Option<Implementation> {
        self.server
            .as_ref()?
            .meta
            .as_ref()?
            .server_info()
            .ok()
            .flatten()
    }

    fn instructions(&self) -> Option<&str> {
        self.server.as_ref()?.instructions.as_deref()
    }
}

fn print(
    about: &About,
    listing: &Listing,
    options: &LsOptions,
    output: Output,
) -> Result<(), Failure> {
    if output.is_json() {
        return Ok(output.json(&listing.to_json(about))?);
    }
    let detail = match (options.short, options.schema, options.name.is_empty()) {
        (true, ..) => Detail::Short,
        (_, true, _) => Detail::Schema,
        (_, _, false) => Detail::Full,
        (_, _, true) => Detail::Normal,
    };
    let lines = render::lines(about, listing, detail, output);
    Ok(output.line(lines.join("\n"))?)
}

impl Listing {
    /// Requests the lists that the server has, all at once.
    async fn fetch(client: &Client, server: Option<&DiscoverResult>) -> Result<Self, Failure> {
        let offered = server.map(|server| &server.capabilities);
        let has = |offers: fn(&ServerCapabilities) -> bool| offered.is_none_or(offers);
        let tools = list(has(|it| it.tools.is_some()), client.list_tools());
        let has_resources = has(|it| it.resources.is_some());
        let resources = list(has_resources, client.list_resources());
        let templates = list(has_resources, client.list_resource_templates());
        let prompts = list(has(|it| it.prompts.is_some()), client.list_prompts());
        let (tools, resources, templates, prompts) =
            tokio::join!(tools, resources, templates, prompts);
        Ok(Self {
            tools: tools?,
            resources: resources?,
            templates: templates?,
            prompts: prompts?,
        })
    }

    /// Keeps only items with these names.
    ///
    /// # Errors
    ///
    /// If there is no item with a name.
    fn retain(&mut self, names: &[String]) -> Result<(), Failure> {
        let known: Vec<String> = self.names().map(str::to_owned).collect();
        for name in names {
            if !known.contains(name) {
                let message = format!("the server has nothing that is called `{name}`");
                let near = nearest(name, known.iter().map(String::as_str));
                let failure = Failure::usage(message);
                return Err(match near {
                    Some(near) => {
                        failure.suggest(Suggestion::OtherItem(name.clone(), near.to_owned()))
                    }
                    None => failure.suggest(Suggestion::ListTools),
                });
            }
        }
        let is_named = |name: &String| names.contains(name);
        let Self {
            tools,
            resources,
            templates,
            prompts,
        } = self;
        tools
            .iter_mut()
            .for_each(|it| it.retain(|tool| is_named(&tool.name)));
        resources
            .iter_mut()
            .for_each(|it| it.retain(|it| is_named(&it.name) || is_named(&it.uri)));
        templates.iter_mut().for_each(|it| {
            it.retain(|it| is_named(&it.name) || is_named(&it.uri_template));
        });
        prompts
            .iter_mut()
            .for_each(|it| it.retain(|prompt| is_named(&prompt.name)));
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let tools = self.tools.iter().flatten().map(|tool| tool.name.as_str());
        let resources =
            (self.resources.iter().flatten()).flat_map(|it| [it.name.as_str(), &it.uri]);
        let templates =
            (self.templates.iter().flatten()).flat_map(|it| [it.name.as_str(), &it.uri_template]);
        let prompts = self
            .prompts
            .iter()
            .flatten()
            .map(|prompt| prompt.name.as_str());
        tools.chain(resources).chain(templates).chain(prompts)
    }

    fn to_json(&self, about: &About) -> Value {
        let tools = self.tools.as_ref().map(|tools| {
            let tools = tools.iter().map(|tool| {
                let mut json = serde_json::to_value(tool).unwrap_or_default();
                json["signature"] = Signature::of_tool(tool).to_line().into();
                json
            });
            tools.collect::<Vec<_>>()
        });
        json!({
            "server": about.info(),
            "protocolVersion": about.version,
            "capabilities": about.server.as_ref().map(|server| &server.capabilities),
            "instructions": about.instructions(),
            "tools": tools,
            "resources": self.resources,
            "resourceTemplates": self.templates,
            "prompts": self.prompts,
        })
    }
}

/// Requests a list if the server has it. Some servers declare resources, and have no method for templates.
async fn list<T>(
    is_offered: bool,
    request: impl Future<Output = bowline::Result<Vec<T>>>,
) -> Result<Option<Vec<T>>, Failure> {
    if !is_offered {
        return Ok(None);
    }
    match request.await {
        Ok(items) => Ok(Some(items)),
        Err(Error::Rpc(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(None),
        Err(error) => Err(error.into()),
    }
}
