// npm's certified oidc-provider as a process: node oidc_peer.mjs MODULES SERVICE. Prints its port, then serves.
//
// Groups stand at userinfo only, as its default is. Whom it knows is set with PUT /people; its own pages for
// developers sign people in. SERVICE is the address of the service that trusts it.
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [, , modules, service, options = '{}'] = process.argv;
const { Provider } = await import(pathToFileURL(`${modules}/node_modules/oidc-provider/lib/index.js`).href);

let people = {};
let handle = null;
const server = createServer(async (request, response) => {
  if (request.method !== 'PUT') return handle(request, response);
  let body = '';
  for await (const part of request) body += part;
  people = JSON.parse(body);
  response.end('{}');
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'exchequer',
    client_secret: 'a secret between two servers',
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: [`${service}/sign-in/provider/return`],
    post_logout_redirect_uris: [`${service}/sign-in/provider/left`],
    backchannel_logout_uri: `${service}/sign-in/provider/back-channel`,
    backchannel_logout_session_required: true,
    ...JSON.parse(options),
  }],
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
  scopes: ['openid', 'profile', 'groups', 'offline_access'],
  features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (context, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
  fetch: (url, { dispatcher, ...more }) => globalThis.fetch(url, more), // the dispatcher refuses this machine
  cookies: { keys: ['a key of this process'] },
});
handle = provider.callback();
console.log(server.address().port);
