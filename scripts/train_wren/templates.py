"""Templates of what people say to each other and to machines, by kind, and what fills them.

`{slot}` is replaced by `texts.py`; the slots that are plain lists are here too.
"""

from __future__ import annotations

NAMES = (
    "John Mary Alice Robert Emma David Sarah Michael Laura Peter Anna James Linda Kevin Susan "
    "Daniel Karen Thomas Nancy Paul Rachel Steven Julia Mark Ahmed Olga Chen Maria Carlos Priya "
    "William Jessica Christopher Ashley Matthew Jennifer Andrew Stephanie Joshua Amanda Brian "
    "Melissa George Nicole Edward Rebecca Ronald Katherine Timothy Samantha Jason Christine "
    "Jeffrey Virginia Ryan Catherine Jacob Deborah Gary Janet Nicholas Diane Eric Joyce Jonathan "
    "Frances Stephen Judith Larry Megan Justin Cheryl Scott Hannah Benjamin Olivia Samuel Sophia "
    "Gregory Victoria Patrick Ruth Alexander Grace Jack Chloe Dennis Zoe Jerry Lily Tyler Ella "
    "Aaron Molly Henry Julian Felix Oscar Hugo Leo Ivan Miguel Diego Luis Elena Sofia Yuki Hiro "
    "Wei Ling Fatima Omar Aisha Ravi Anil Sunita Lars Ingrid Sven Pierre Colette Giulia Marco"
).split()
SURNAMES = (
    "Smith Johnson Brown Garcia Miller Wilson Taylor Anderson Cooper Davis Rodriguez Martinez "
    "Hernandez Lopez Gonzalez Thompson White Harris Clark Lewis Robinson Walker Young Allen King "
    "Wright Scott Torres Nguyen Hill Flores Green Adams Nelson Baker Hall Rivera Campbell Mitchell "
    "Carter Roberts Phillips Evans Turner Parker Collins Edwards Stewart Morris Murphy Cook Rogers "
    "Morgan Peterson Bailey Reed Kelly Howard Kim Cox Ward Richardson Watson Brooks Wood James "
    "Bennett Gray Hughes Mendoza Cruz Sanders Ross Foster Jimenez Powell Jenkins Perry Russell "
    "Sullivan Bell Coleman Butler Henderson Barnes Fisher Vasquez Simmons Graham Murray Ford "
    "Castro Marshall Owens Harrison McDonald Woods Washington Kennedy Wells Schmidt Fischer Weber "
    "Meyer Rossi Bianchi Ivanov Petrov Kowalski Nowak Larsen Hansen Virtanen Tanaka Suzuki Patel "
    "Sharma Gupta Singh Khan Ali Hassan Cohen Levy O'Brien O'Connor Walsh Byrne Dubois Moreau"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday today tomorrow".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
THINGS = (
    "order,appointment,account,package,invoice,reservation,ticket,delivery,payment,subscription,"
    "password,request,question,flight,table,phone,computer,car,house,meeting,message,room,bill,"
    "address,recipe,calendar,document,refund,insurance,prescription,key,coffee,dinner,project,"
    "contract,camera,charger,umbrella,jacket,laptop,printer,passport,suitcase,bicycle,lamp,"
    "garden,kitchen,window,ladder,blanket,mirror,guitar,notebook,schedule,budget,report,update"
).split(",")
GOODS = (
    "milk,bread,eggs,butter,rice,pasta,tomatoes,onions,carrots,potatoes,apples,bananas,grapes,"
    "lemons,cheese,yogurt,chicken,salmon,beans,pepper,sugar,honey,tea,juice,soap,candles,towels,"
    "batteries,nails,paint,rope,stamps,envelopes,socks,gloves,boots,hats,scarves,pillows,plates,"
    "cups,spoons,knives,forks,baskets,bottles,jars,tape,glue,markers,maps,tents,torches,matches"
).split(",")
PLACES = (
    "London,Paris,New York,Chicago,Boston,Seattle,Texas,California,Berlin,Madrid,Tokyo,Canada,"
    "San Francisco,Los Angeles,Houston,Atlanta,Detroit,Portland,Nashville,Cleveland,Baltimore,"
    "Milwaukee,Sacramento,Kansas City,Miami,Dallas,Phoenix,San Diego,Las Vegas,Pittsburgh,"
    "Mexico,Brazil,Argentina,Egypt,Kenya,Nigeria,India,China,Korea,Australia,Norway,Sweden,"
    "Finland,Poland,Turkey,Greece,Italy,Spain,Portugal,Ireland,Scotland,Amsterdam,Brussels,"
    "Zurich,Munich,Barcelona,Lisbon,Dublin,Athens,Cairo,Mumbai,Singapore,Bangkok,Sydney,"
    "the airport,the office,the station,the hotel,the hospital,the store,the library,the bank,"
    "the kitchen,the second floor,the main street,the other side of the river,the harbor,"
    "the market,the museum,the bridge,the park,the school,the garage,the basement"
).split(",")
QUALITIES = (
    "quick slow warm cold bright dark heavy light strong weak clean dirty fresh old new cheap "
    "expensive loud quiet soft hard sweet sour empty full early late simple strange gentle rough"
).split()
ACTS = (
    "open the door,close the window,wash your hands,check the list,call the office,press the "
    "button,turn the handle,wait for the signal,read the label,fill the glass,count to ten,take a "
    "deep breath,write it down,sign the form,lock the car,feed the dog,water the plants,send the "
    "file,clean the table,boil the water,stir the soup,pay the bill,pack the bag,set the alarm"
).split(",")

CONVERSATION = """
Hello, how can I help you today?
Hi {name}, how are you?
Hello {name}, nice to meet you.
Sure, let me check that for you.
One moment please.
Thank you for calling {place}.
Good morning!
Good afternoon, this is {name} speaking.
Yes.
No.
Okay.
I see.
Goodbye!
Please hold the line.
I am sorry to hear that.
That sounds great!
Let's get started.
I can't find your {thing}.
We'll be in {place} on {day}.
The {thing} is ready, {name}.
Please spell your last name.
You're welcome, {name}.
I don't know.
Let me think about it.
Here is what I found about {word}.
Yes, of course.
No problem at all.
Wait a second.
Have a nice day!
See you on {day}.
{name} and {name} are coming to {place}.
Please press {dg}, or say {word}.
I said {word}, not {word}.
Right.
Great, thanks!
Sorry, I didn't catch that.
The answer is {word}.
I think {name} was in {place} last {month}.
She told me that the {thing} was too {quality}.
He said he would bring the {thing} in half an hour.
They were waiting for the {thing} near {place}.
We need to talk about the {thing} before {name} comes.
If you have a {thing}, please tell me now.
I have never been to {place}, but {name} has.
Don't forget your {thing}, {name}!
Nobody knows where the {thing} went.
My {thing} stopped working this morning.
Well, {word} is one of those things that I never really understood.
I'm afraid the {thing} isn't available until {day}.
Please turn on the lights in {place}.
Remind me to buy {goods} and {goods} on {day}.
Um, I guess the {word} would be fine.
Oh, really? I had no idea.
Thanks, {name}. That's very kind of you.
It's not that {quality}, but it isn't {quality} either.
I'd love to, but I already promised {name} to {act}.
Actually, I've changed my mind about the {thing}.
Hmm, that's strange. It worked {day}.
Absolutely, I'll {act} right away.
I wouldn't worry about the {thing} if I were you.
Come on, {name}, we're going to miss it!
You should've told me about the {thing}.
It's been a while since I was in {place}.
That's the one I was talking about.
I'm looking for a {quality} {thing}.
We've got plenty of {goods}, so don't worry.
Just {act}, and I'll do the rest.
Please {act} before you leave.
They said it'd be {quality}, and they were right.
I'm so glad you could make it to {place}.
It wasn't me, it was {name}.
Could be worse, I suppose.
{name}, could you please {act}?
Sorry about the {thing}, I'll {act} as soon as I can.
Nice work, {name}. The {thing} looks {quality}.
""".strip().splitlines()

QUESTIONS = """
Could you repeat that?
What is your name?
Are you still there?
Would you like to change your {thing}?
Can you tell me more about the {thing}?
How do I get to {place}?
Do you want to cancel the {thing}?
Is there anything else I can help you with?
What do you think about the {thing}?
Did you say {word}?
Where did {name} put the {thing}?
Why is the {thing} in {place}?
When does {name} leave for {place}?
Who is going to pay for the {thing}?
Which {thing} do you like best?
How many people are in {place}?
How long does it take to get to {place}?
Could you send the {thing} to {name} before {day}?
What's the weather like in {place} {day}?
Is it {word}, or {word}?
Have you seen my {thing}?
Has anyone told {name} about the {thing}?
Isn't the {thing} a bit {quality}?
Do you know whether {name} is in {place}?
Should I {act}, or {act}?
Why don't you just {act}?
Who told you to {act}?
Were there any {goods} left?
Don't we have enough {goods}?
What kind of {thing} are you looking for?
Would it help if I {act} first?
How {quality} was the {thing}?
Whose {thing} is this?
What does {word} mean?
How do you spell {surname}?
Are the {goods} still in {place}?
Weren't you in {place} on {day}?
When was the {thing} built?
Can we {act} on {day}?
Did {name} really say that?
Do I have to {act} every day?
Where's the nearest place to buy {goods}?
Why was the {thing} so {quality}?
Is {name} coming, too?
Will it be {quality} in {place}?
""".strip().splitlines()

NUMBERS = """
Your {thing} number is {n}.
The meeting is at {time}.
It will cost {money}.
That comes to {money}.
Call me at {digits}, {digits}.
Call me at {phone}.
You can reach us at {phone} until {time}.
My number is {phone}.
The date is {date}.
There are {n} items in your cart.
It is {n2} degrees outside.
Your {thing} will arrive on {day}, {month} {d}.
My code is {l}, {l}, {l}, {dg}, {dg}.
The temperature in {place} is {n2} degrees.
It's {time}.
I'll call you back in {n2} minutes.
{n} plus {n2} is {n}.
Turn left, then go straight for {n2} miles.
Your balance is {money}.
The train to {place} leaves at {time}.
{digits}.
{n}.
I would like a {thing} for {n2} people, please.
I can do that for you, but it will take about {n2} minutes.
Let me read that back to you: {digits}, then {l}, {l}.
You have {n2} new messages.
Chapter {n2}, page {n}.
In {year}, {name} moved to {place}.
It happened on the {ord} of {month}, {year}.
It's going to be cold and rainy in {place}, with {n2} degrees.
Set a timer for {n2} minutes.
The {thing} costs {n2} dollars more than the {thing}.
{name} was born on {date}.
The {thing} is open from {time} to {time}.
About {n2}% of the {goods} were sold by {time}.
The price went from {money} to {money}.
We sold {big} {goods} in {year}.
It weighs {decimal} kg.
Add {fraction} cup of {goods}.
The {thing} is {decimal} miles from {place}.
{name} paid {money} for the {thing}.
Take the {ord} street on the left.
That was the {ord} time in {n2} years.
In {year}, there were {big} people in {place}.
The {thing} arrives on {date} at {time}.
{decimal} percent is less than {n2}%.
Flight {l}{l} {n} leaves from gate {n2}.
Room {n} is on the {ord} floor.
The score was {n2} to {n2}.
{money}.
{date}.
{time}.
{phone}.
It's {n} {surname} Street, apartment {n2}.
They spent ${decimal} million on the {thing}.
The {year0}s were good to {place}.
It's {n2} mph over the limit.
My zip code is {zip}.
The confirmation number is {l} {dg} {dg} {l} {dg}.
We need {n2} {goods} and {n2} {goods} by {time}.
The {thing} is due on {month} {d}.
It took {n2} hours and {n2} minutes.
{n2} of the {n} {goods} were broken.
It fell by {decimal}% in {month}.
""".strip().splitlines()

SPELLED = """
That's {l} as in {name}.
My last name is {surname}: {spelled}.
{surname} is spelled {spelled}.
It's {name} {surname}, {spelled}.
{spelled}.
{name}. That's {spelled}.
My email is {name} at {word} dot com.
My email is {email}.
A, B, C, {l}, {l}, {l}.
Please write {word}: {spelled}.
{name} {surname}.
{name}.
Is that {surname}, or {surname}?
Mr. {surname} and Mrs. {surname} are from {place}.
Dr. {surname} will see you at {time}.
Professor {name} {surname} lives in {place}.
Ms. {surname} called about the {thing}.
Thank you, {name} {surname}.
{name}, {name}, and {name} are on the list.
Please ask for {name} {surname} in {place}.
The {thing} belongs to {name} {surname}.
{name} {surname} introduced {name} {surname} to {name}.
""".strip().splitlines()

LISTS = """
Okay, so first we go to {place}, and then we look for the {thing}.
The first thing is {word}, the second is {word}, and the third is {word}.
{word}, {word}, and {word}.
{word}, {word}, {word}, {word}.
{goods}, {goods}, and {goods}.
We need {goods}, {goods}, {goods}, and some {goods}.
Please buy {goods}, {goods}, and {goods}.
First {act}, then {act}, and finally {act}.
It was {quality}, {quality}, and {quality}.
It can be {quality}, {quality}, or {quality}.
We went to {place}, {place}, and {place}.
{name} brought the {goods}, {name} brought the {goods}, and I brought the {thing}.
One is {quality}, one is {quality}, and one is {quality}.
They sell {goods}, {goods}, {goods}, {goods}, and {goods}.
{act}, {act}, and {act}.
{month}, {month}, or {month}?
{day}, {day}, and {day}.
The box held a {thing}, some {goods}, and an old {thing}.
There are three of them: the {thing}, the {thing}, and the {thing}.
""".strip().splitlines()

CLAUSES = """
When the {thing} finally came, we had to {act}, {act}, and leave for {place}
If you're going to {place} in {month}, remember to bring {goods} and {goods}
Although {name} had never been to {place} before, it felt {quality} and {quality}
Before you {act}, please {act}, because the {thing} may still be {quality}
She said that the {thing} would be in {place} until {day}
As soon as {name} had left, the whole room was {quality} again
The {thing}, which had been in {place} for almost {n2} years, was still {quality}
He explained that nobody could {act} without a {thing}
I used to think that the {thing} was {quality}, but after a year in {place} I know better
Most people believe that {word} is {quality}
There was a {quality} {thing} in the corner, next to the {goods}
The children ran ahead, while {name} and {name} followed slowly with the {goods}
""".strip().splitlines()
JOINTS = ", and ", ", but ", ", so ", "; ", ", because ", ", while "
TEMPLATES = {
    "conversation": CONVERSATION,
    "questions": QUESTIONS,
    "numbers": NUMBERS,
    "spelled": SPELLED,
    "lists": LISTS,
}
