//! Tests of the real binary with real clients: curl, nghttp, h2load, Chromium, and bytes that no client would
//! send.

mod access;
mod acme;
mod answers;
mod bad_input;
mod browser;
mod caching;
mod clients;
mod deploy;
mod from_haproxy;
mod gateway;
mod kernel_mode;
mod lifecycle;
mod listings;
mod logs;
mod mistakes;
mod origin;
mod packages;
mod page;
mod priorities;
mod proxied;
mod smuggling;
mod support;
mod three_sites;
mod upgrade;
mod webdriver;
