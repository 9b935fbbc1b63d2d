#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod redirect;
mod template;

pub use self::{
    redirect::{Redirect, Rewrite},
    template::{BadTarget, Source},
};
