//! The code blocks of the READMEs and the guide, which run as doctests.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../README.md")]
struct PackageReadme;

// The macros need `bowline`, on which their crate does not depend.
#[doc = include_str!("../../bowline-macros/README.md")]
struct MacrosReadme;

#[doc = include_str!("../../../docs/doctor.md")]
struct Doctor;

#[doc = include_str!("../../../docs/drain.md")]
struct Drain;

#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

#[doc = include_str!("../../../docs/first-client.md")]
struct FirstClient;

#[doc = include_str!("../../../docs/first-server.md")]
struct FirstServer;

#[doc = include_str!("../../../docs/from-python-and-typescript.md")]
struct FromPythonAndTypescript;

#[doc = include_str!("../../../docs/from-rmcp.md")]
struct FromRmcp;

#[doc = include_str!("../../../docs/http-in-production.md")]
struct HttpInProduction;

#[doc = include_str!("../../../docs/input.md")]
struct Input;

#[doc = include_str!("../../../docs/letting-go.md")]
struct LettingGo;

#[doc = include_str!("../../../docs/limits.md")]
struct Limits;

#[doc = include_str!("../../../docs/middleware.md")]
struct Middleware;

#[doc = include_str!("../../../docs/recordings.md")]
struct Recordings;

#[doc = include_str!("../../../docs/subscriptions.md")]
struct Subscriptions;

#[doc = include_str!("../../../docs/telemetry.md")]
struct Telemetry;

#[doc = include_str!("../../../docs/testing.md")]
struct Testing;

#[doc = include_str!("../../../docs/timeouts.md")]
struct Timeouts;

#[doc = include_str!("../../../docs/tool.md")]
struct Tool;

#[doc = include_str!("../../../docs/transports.md")]
struct Transports;

#[doc = include_str!("../../../docs/troubleshooting.md")]
struct Troubleshooting;
