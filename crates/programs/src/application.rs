//! The application of a route: a program that is started for each request, or one that runs already.

use bodies::RequestBody;
use http::Request;

use crate::{
    cgi::{Cgi, CgiAnswer},
    context::Context,
    error::CgiError,
    fastcgi::FastCgi,
    uwsgi::Uwsgi,
};

/// The application that answers the requests of a route.
#[derive(Debug)]
pub enum Application {
    /// Programs, each run for one request.
    Cgi(Cgi),
    /// An application that runs already, behind FastCGI.
    FastCgi(Box<FastCgi>),
    /// An application that runs already, behind uwsgi.
    Uwsgi(Box<Uwsgi>),
}

impl Application {
    /// Has the request answered. Dropping the future, or the body of the answer, ends the work for it.
    pub async fn run(&self, request: Request<RequestBody>, context: Context<'_>) -> Result<CgiAnswer, CgiError> {
        match self {
            Self::Cgi(cgi) => cgi.run(request, context).await,
            Self::FastCgi(fastcgi) => fastcgi.run(request, context).await,
            Self::Uwsgi(uwsgi) => uwsgi.run(request, context).await,
        }
    }
}
