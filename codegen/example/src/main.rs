use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ttrpc_keepalive::{Client, Context, Requests, Responses, Server, Status};

mod protos {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}
use protos::greeter::{Greeting, Person};
use protos::greeter_ttrpc::{Greeter, GreeterClient, greeter_service};

struct Polite;

impl Greeter for Polite {
    async fn greet(&self, _: Context, request: Person) -> Result<Greeting, Status> {
        Ok(greeting(&request.name))
    }

    async fn greet_household(
        &self,
        _: Context,
        request: Person,
        responses: Responses<Greeting>,
    ) -> Result<(), Status> {
        for other in ["", "'s cat"] {
            let name = format!("{}{other}", request.name);
            responses.send(&greeting(&name)).await?;
        }
        Ok(())
    }

    async fn greet_together(
        &self,
        _: Context,
        mut requests: Requests<Person>,
    ) -> Result<Greeting, Status> {
        let mut names = Vec::new();
        while let Some(request) = requests.next().await {
            names.push(request?.name);
        }
        Ok(greeting(&names.join(" and ")))
    }

    async fn greet_each(
        &self,
        _: Context,
        mut requests: Requests<Person>,
        responses: Responses<Greeting>,
    ) -> Result<(), Status> {
        while let Some(request) = requests.next().await {
            responses.send(&greeting(&request?.name)).await?;
        }
        Ok(())
    }
}

fn greeting(name: &str) -> Greeting {
    Greeting {
        text: format!("Good day, {name}"),
        ..Greeting::default()
    }
}

fn person(name: &str) -> Person {
    Person {
        name: name.to_owned(),
        ..Person::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A pipe in memory here; a `Listener` and `Client::builder().connect(address)` elsewhere.
    let (here, there) = tokio::io::duplex(4096);
    let greeter = greeter_service(Arc::new(Polite));
    let server = Server::builder().service(greeter).build()?;
    tokio::spawn(async move { server.serve_connection(there).await });
    let greeter = GreeterClient::new(Client::builder().attach(here)?);

    let (ada, ben) = (person("Ada"), person("Ben"));
    let reply = greeter.greet(&ada).timeout(Duration::from_secs(2)).await?;
    println!("{}", reply.text);

    let mut replies = greeter.greet_household(&ben).await?;
    while let Some(reply) = replies.next().await {
        println!("{}", reply?.text);
    }

    let (people, reply) = greeter.greet_together().await?;
    people.send(&ada).await?;
    people.send(&ben).await?;
    people.finish();
    println!("{}", reply.await?.text);

    let (people, mut replies) = greeter.greet_each().await?;
    people.send(&ada).await?;
    people.finish();
    while let Some(reply) = replies.next().await {
        println!("{}", reply?.text);
    }
    Ok(())
}
