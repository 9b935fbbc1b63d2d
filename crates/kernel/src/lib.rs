//! stub
pub mod netns;
