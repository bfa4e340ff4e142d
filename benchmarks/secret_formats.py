"""Real formats of secrets, with values made up on the spot, so that none of them is ever in a file.

A template says what a secret looks like: `w` stands for a letter or digit, `u` for one of those or `_` or `-`,
`x` for a hexadecimal digit, and so on, each with a length: `{w36}`. What is to be masked is between « and »
(or else all of it).
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

_LETTERS: Final = string.ascii_letters
_ALNUM: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_CLASSES: Final = {
    "w": _ALNUM,
    "u": _ALNUM + "_-",
    "x": "0123456789abcdef",
    "l": _LETTERS,
    "d": string.digits,
    "a": string.ascii_lowercase + string.digits,
    "A": string.ascii_uppercase + string.digits,
    "k": string.ascii_uppercase + "234567",
    "b": _ALNUM + "+/",
    "q": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}


class Format(NamedTuple):
    title: str
    # The name of the rule that should find it, and the lowest level with that rule.
    rule: str
    level: str
    make: Callable[[random.Random], str]

    def example(self, seed: int = 0) -> tuple[str, str]:
        """Return a text with a secret in it, and the secret."""
        made = self.make(random.Random(f"{self.title}{seed}"))
        if "«" not in made:
            return made, made
        before, _, rest = made.partition("«")
        secret, _, after = rest.partition("»")
        return before + secret + after, secret


def _run(rng: random.Random, length: int, alphabet: str) -> str:
    """Return random characters, enough digits among them and neither - nor _ at the ends."""
    while True:
        text = "".join(rng.choices(alphabet, k=length))
        digits = sum(map(str.isdigit, text))
        if text[0].isalnum() and text[-1].isalnum() and (alphabet == _LETTERS or digits >= length // 12):
            return text


def _fill(template: str) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        template_ = template.replace("{uuid}", "{x8}-{x4}-{x4}-{x4}-{x12}")
        return re.sub(
            r"\{([a-zA-Z])(\d+)\}", lambda part: _run(rng, int(part[2]), _CLASSES[part[1]]), template_
        )

    return make


def _checksummed(prefix: str) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        body = _run(rng, 30, _ALNUM)
        rest, digits = crc32(body.encode()), ""
        for _ in range(6):
            rest, digit = divmod(rest, 62)
            digits = _ALNUM[digit] + digits
        return prefix + body + digits

    return make


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _jwt(rng: random.Random) -> str:
    parts = [
        {"alg": "RS256", "typ": "JWT", "kid": _run(rng, 12, _ALNUM)},
        {"sub": _run(rng, 20, _ALNUM), "exp": 1999999999},
    ]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, _run(rng, 86, _CLASSES["u"])])


def _pem(kind: str) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        lines = "\n".join(_run(rng, 64, _CLASSES["b"]) for _ in range(8))
        return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"

    return make


def _service_account(rng: random.Random) -> str:
    key = _pem("PRIVATE KEY")(rng).replace("\n", "\\n")
    return f'{{"type": "service_account", "private_key": "«{key}»", "client_email": "a@b.iam"}}'


def _discord(rng: random.Random) -> str:
    number = str(rng.randrange(10**17, 10**18))
    return f"{_b64(number).rstrip('=')}.{_run(rng, 6, _ALNUM)}.{_run(rng, 38, _CLASSES['u'])}"


def _kubeconfig(rng: random.Random) -> str:
    return f"    client-key-data: «{_b64(_pem('RSA PRIVATE KEY')(rng))}»\n"


def _docker(rng: random.Random) -> str:
    return f'{{"auths": {{"registry.local": {{"auth": "«{_b64("ada:" + _run(rng, 14, _ALNUM))}»"}}}}}}'


def _basic(rng: random.Random) -> str:
    return f"Authorization: Basic «{_b64('ada:' + _run(rng, 14, _ALNUM))}»"


_TOKENS: Final = """
1Password service account|1password-token|ops_eyJ{u300}
Adafruit IO|adafruit-key|aio_{w28}
age identity|age-key|AGE-SECRET-KEY-1{q58}
Airtable|airtable-token|pat{w14}.{x64}
Alibaba Cloud|alibaba-key|LTAI{w20}
Amazon MWS|amazon-mws-token|amzn.mws.{uuid}
Anthropic API|anthropic-key|sk-ant-api03-{u93}AA
Anthropic admin|anthropic-key|sk-ant-admin01-{u93}AA
Apify|apify-token|apify_api_{w36}
Artifactory|artifactory-token|AKCp{w69}
Asana|asana-token|1/{d16}:{x32}
Atlassian API|atlassian-token|ATATT3xFfGF0{u170}
Atlassian Bitbucket app password|atlassian-token|ATBB{w32}
AWS access key|aws-access-key|AKIA{k16}
AWS session key|aws-access-key|ASIA{k16}
AWS secret key|aws-secret-key|aws_secret_access_key = «{b40}»
AWS session token|aws-session-token|IQoJb3JpZ2luX2Vj{b300}
AWS Bedrock|aws-bedrock-key|ABSK{b128}
Azure AD client secret|azure-ad-secret|{w3}8Q~{w34}
Azure DevOps|azure-devops-token|{w76}AZDO{w4}
Azure Storage|azure-key|DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{b86}==»
Azure Service Bus|azure-key|Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b43}=»
Azure SAS|azure-key|https://a.blob.core.windows.net/c?sv=2024&sig=«{w43}%3D»
Brevo|brevo-key|xkeysib-{x64}-{w16}
Buildkite|buildkite-token|bkua_{x40}
Cerebras|cerebras-key|csk-{a48}
CircleCI|circleci-token|CCIPAT_{w22}_{x40}
ClickUp|clickup-token|pk_{d8}_{A32}
Clojars|clojars-token|CLOJARS_{x60}
Cloudflare origin CA|cloudflare-key|v1.0-{x24}-{x146}
Contentful|contentful-token|CFPAT-{u43}
crates.io|crates-token|cio{w32}
Cursor|cursor-key|key_{x64}
Databricks|databricks-token|dapi{x32}
dbt Cloud|dbt-token|dbtc_{w40}
DigitalOcean|digitalocean-token|dop_v1_{x64}
Discord webhook|discord-webhook|https://discord.com/api/webhooks/{d18}/«{u68}»
Docker Hub|docker-token|dckr_pat_{u27}
Doppler|doppler-token|dp.pt.{w43}
Dropbox|dropbox-token|sl.u.{u140}
Duffel|duffel-token|duffel_live_{u43}
Dynatrace|dynatrace-token|dt0c01.{A24}.{A64}
E2B|e2b-key|e2b_{x40}
EasyPost|easypost-key|EZAK{w54}
ElevenLabs|elevenlabs-key|sk_{x48}
Facebook|facebook-token|EAAB{w160}
Figma|figma-token|figd_{u43}
Firecrawl|firecrawl-key|fc-{x32}
Fireworks|fireworks-key|fw_{w24}
Flutterwave|flutterwave-key|FLWSECK-{w32}-X
Fly.io|fly-token|fm2_{b180}
Frame.io|frameio-token|fio-u-{u64}
GitHub fine-grained|github-pat|github_pat_{w22}_{w59}
GitLab personal|gitlab-token|glpat-{u20}
GitLab routable|gitlab-token|glpat-{u27}.01.{a9}
GitLab runner|gitlab-token|glrt-{u20}
Google API|google-api-key|AIza{u35}
Google OAuth access|google-oauth|ya29.{u120}
Google OAuth client secret|google-oauth|GOCSPX-{u28}
Google OAuth refresh|google-oauth|1//0{u98}
Grafana service account|grafana-token|glsa_{w32}_{x8}
Groq|groq-key|gsk_{w52}
Helicone|helicone-key|sk-helicone-{a7}-{a7}-{a7}-{a7}
Heroku|heroku-key|HRKU-AA{u58}
Honeycomb|honeycomb-key|hcaik_{a58}
HubSpot|hubspot-token|pat-na1-{uuid}
Hugging Face|huggingface-token|hf_{l34}
Infisical|infisical-token|st.{uuid}.{x32}.{x32}
Jina|jina-key|jina_{w60}
Langfuse|langfuse-key|sk-lf-{uuid}
LangSmith|langsmith-key|lsv2_pt_{x32}_{x10}
LaunchDarkly SDK|launchdarkly-key|sdk-{uuid}
Linear|linear-key|lin_api_{w40}
Mailchimp|mailchimp-key|{x32}-us14
Mailgun|mailgun-key|{x32}-{x8}-{x8}
Mapbox secret|mapbox-token|sk.eyJ{u80}.{u22}
Neon|neon-key|napi_{a64}
Netlify|netlify-token|nfp_{w36}
New Relic|newrelic-key|NRAK-{A27}
Notion|notion-token|ntn_{w46}
Notion, older|notion-token|secret_{w43}
NuGet|nuget-key|oy2{a43}
NVIDIA|nvidia-key|nvapi-{u64}
OpenAI, older|openai-key|sk-{w48}
OpenAI project|openai-key|sk-proj-{u120}
OpenAI service account|openai-key|sk-svcacct-{u120}
OpenRouter|openrouter-key|sk-or-v1-{x64}
Paddle|paddle-key|pdl_live_apikey_{a26}_{w22}_{w3}
PayPal Braintree|paypal-token|access_token$production${a16}${x32}
Perplexity|perplexity-key|pplx-{w48}
Pinecone|pinecone-key|pcsk_{w6}_{w63}
Plaid|plaid-token|access-production-{uuid}
PlanetScale|planetscale-token|pscale_tkn_{u43}
PostHog personal|posthog-key|phx_{w43}
Postman|postman-key|PMAK-{x24}-{x34}
Prefect|prefect-key|pnu_{w36}
Pulumi|pulumi-token|pul-{x40}
PyPI|pypi-token|pypi-AgEIcHlwaS5vcmc{u150}
Razorpay|razorpay-key|rzp_live_{w14}
ReadMe|readme-key|rdme_{a70}
Render|render-key|rnd_{w32}
Replicate|replicate-token|r8_{w37}
Resend|resend-key|re_{w8}_{w24}
RubyGems|rubygems-key|rubygems_{x48}
RunPod|runpod-key|rpa_{w46}
Salesforce session|salesforce-token|00D{w12}!{w96}
SendGrid|sendgrid-key|SG.{u22}.{u43}
Sentry user|sentry-token|sntryu_{x64}
Sentry organization|sentry-token|sntrys_eyJ{w180}
Shippo|shippo-token|shippo_live_{x40}
Shopify|shopify-token|shpat_{x32}
Slack bot|slack-token|xoxb-{d12}-{d13}-{w24}
Slack user|slack-token|xoxp-{d12}-{d12}-{d13}-{x32}
Slack app|slack-token|xapp-1-A{A10}-{d13}-{x64}
Slack cookie|slack-token|xoxd-{w140}
Slack webhook|slack-webhook|https://hooks.slack.com/services/«T{A8}/B{A10}/{w24}»
SonarQube|sonarqube-token|sqp_{x40}
Sourcegraph|sourcegraph-token|sgp_{x16}_{x40}
Square|square-token|sq0atp-{u22}
Stripe live|stripe-key|sk_live_{w99}
Stripe restricted|stripe-key|rk_live_{w99}
Stripe webhook|stripe-key|whsec_{w32}
Supabase|supabase-key|sbp_{x40}
Tailscale|tailscale-key|tskey-auth-{w17}-{w32}
Tavily|tavily-key|tvly-dev-{w32}
Teams webhook|teams-webhook|https://a.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/«{x32}/{uuid}»
Telegram bot|telegram-token|{d10}:AA{u33}
Terraform Cloud|terraform-token|{w14}.atlasv1.{u67}
Trello|trello-token|ATTA{x64}
Twilio|twilio-key|SK{x32}
Typeform|typeform-token|tfp_{w44}_{w14}
Vault|vault-token|hvs.{u95}
Vercel|vercel-token|vcp_{w56}
Voyage AI|voyage-key|pa-{u43}
W&B|wandb-key|wandb_v1_{w60}
xAI|xai-key|xai-{w80}
Yandex Cloud|yandex-key|AQVN{u37}
Zuplo|zuplo-key|zpka_{x32}_{x8}
Bearer header|authorization|Authorization: Bearer «{w40}»
PostgreSQL URL|url-password|postgresql://ada:«{w14}»@db.internal:5432/app
MongoDB URL|url-password|mongodb+srv://ada:«{w14}»@cluster0.local/app
Redis URL|url-password|redis://:«{w20}»@cache:6379/0
AMQP URL|url-password|amqps://ada:«{w16}»@mq/vhost
Git remote with a password|url-password|https://ada:«{w20}»@git.local/x.git
"""
_KEYS: Final = """
netrc|password|machine api.local login ada password «{w12}»
curl -u|password|curl -s -u ada:«{w12}» https://api.local/v1
pgpass|password|db.local:5432:app:ada:«{w14}»
Redis configuration|password|requirepass «{w20}»
mysql|password|mysql -u root -p«{w14}» app
XML element|password|<server><password>«{w14}»</password></server>
XML attribute|password|<add key="DbPassword" value="«{w14}»" />
sshpass|password|sshpass -p '«{w12}»' ssh ada@host
SQL user|password|CREATE USER ada IDENTIFIED BY '«{w12}»';
YAML password|credential|  password: «{w12}»
YAML, chosen by hand|credential|  password: «hunter2»
dotenv password|credential|DB_PASSWORD=«{w16}»
dotenv, shorter|credential|DB_PASS=«{w16}»
Rails|credential|secret_key_base: «{x128}»
Laravel|credential|APP_KEY=«base64:{w43}=»
dotenv secret|credential|SESSION_SECRET="«{w32}»"
npmrc|credential|//registry.local/:_authToken=«{w36}»
JSON api key|credential|{"apiKey": "«{w32}»"}
Python settings|credential|SECRET_KEY = '«{b50}»'
Java properties|credential|spring.datasource.password=«{w14}»
ADO.NET|credential|Server=db;User Id=sa;Password=«{w14}»;Encrypt=true
Terraform variable|credential|  client_secret = "«{w40}»"
Query string|credential|https://api.local/v1?access_token=«{w40}»&page=2
Command line|credential|tool --api-key «{w32}» run
Datadog|credential|DD_API_KEY=«{x32}»
Algolia|credential|ALGOLIA_API_KEY=«{x32}»
Twilio auth token|credential|TWILIO_AUTH_TOKEN=«{x32}»
Cloudflare|credential|CLOUDFLARE_API_TOKEN=«{u40}»
Heroku, older|credential|HEROKU_API_KEY=«{uuid}»
X-Api-Key header|credential|X-Api-Key: «{w32}»
"""


def _listed(table: str, level: str) -> list[Format]:
    rows = [line.split("|") for line in table.strip().splitlines()]
    return [Format(title, rule, level, _fill(template)) for title, rule, template in rows]


FORMATS: Final[list[Format]] = [
    *_listed(_TOKENS, "tokens"),
    Format("GitHub personal", "github-token", "tokens", _checksummed("ghp_")),
    Format("GitHub OAuth", "github-token", "tokens", _checksummed("gho_")),
    Format("GitHub app", "github-token", "tokens", _checksummed("ghs_")),
    Format("npm", "npm-token", "tokens", _checksummed("npm_")),
    Format("JWT", "jwt", "tokens", _jwt),
    Format("Discord bot", "discord-token", "tokens", _discord),
    Format("RSA key", "private-key", "tokens", _pem("RSA PRIVATE KEY")),
    Format("OpenSSH key", "private-key", "tokens", _pem("OPENSSH PRIVATE KEY")),
    Format("PGP key", "private-key", "tokens", _pem("PGP PRIVATE KEY BLOCK")),
    Format("GCP service account", "private-key", "tokens", _service_account),
    Format("kubeconfig", "private-key", "tokens", _kubeconfig),
    Format("Basic header", "authorization", "tokens", _basic),
    Format("Docker auth", "credential", "keys", _docker),
    Format(
        "netrc, in lines",
        "password",
        "keys",
        _fill("machine api.local\n  login ada\n  password «{w12}»\n"),
    ),
    *_listed(_KEYS, "keys"),
]
